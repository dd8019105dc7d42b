//! What a kernel is started with: its tensors in words, and its scalars. Declared once each, for the launch on a device and
//! for the code generated without one.

/// Declares a kernel's view of an operator's tensors: the word that each is read and written in.
macro_rules! arguments {
    (
        $(#[$meta:meta])*
        pub struct $type:ident$(<$size:ident, $out_words:ident>)? of $tensors:ident { $($field:ident: $word:ty = $bytes:expr),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(cubecl::prelude::CubeType, cubecl::prelude::CubeLaunch)]
        #[allow(missing_docs, reason = "described at the tensors of the operator")]
        pub struct $type$(<$size: cubecl::prelude::Size>)? { $(pub $field: Box<[$word]>),+ }

        // What generates code and what starts it take the tensors in the order of the operator's list.
        const _: () = assert!(
            $crate::arguments::same_names(&[$(stringify!($field)),+], <$tensors<&'static str>>::ORDER),
            "the order of these arguments must be that of the operator's tensors"
        );

        /// Bytes of the word that each tensor is accessed in.
        pub(super) const fn word_bytes($($out_words: usize)?) -> $tensors<usize> {
            $tensors { $($field: $bytes),+ }
        }

        /// The tensors as arguments of a launch. Those that are absent are never accessed.
        ///
        /// # Safety
        /// Every buffer is at least as large as `sizes` says.
        pub(super) unsafe fn buffer_arguments$(<$size: cubecl::prelude::Size>)?(
            buffers: $tensors<Option<cubecl::server::Handle>>,
            sizes: $tensors<usize>,
            $($out_words: usize,)?
            unused: &cubecl::server::Handle,
        ) -> ArgumentsLaunch$(<$size>)? {
            let slice = |((buffer, bytes), word): ((Option<cubecl::server::Handle>, usize), usize)| {
                // SAFETY: as the caller promises.
                unsafe {
                    cubecl::prelude::BufferArg::from_raw_parts(
                        buffer.unwrap_or_else(|| unused.clone()),
                        bytes / word,
                    )
                }
            };
            let $tensors { $($field),+ } = buffers.zip(sizes).zip(word_bytes($($out_words)?)).map(slice);
            ArgumentsLaunch::new($($field),+)
        }

        /// The tensors as arguments of a compilation.
        pub(super) fn buffer_compilation$(<$size: cubecl::prelude::Size>)?() -> ArgumentsCompilationArg$(<$size>)? {
            let buffer = || cubecl::prelude::BufferCompilationArg { inplace: None };
            ArgumentsCompilationArg { $($field: buffer()),+ }
        }
    };
}
pub(crate) use arguments;

/// Are the names the same, in the same order?
pub(crate) const fn same_names(names: &[&str], others: &[&str]) -> bool {
    if names.len() != others.len() {
        return false;
    }
    let mut i = 0;
    while i < names.len() {
        let (name, other) = (names[i].as_bytes(), others[i].as_bytes());
        if name.len() != other.len() {
            return false;
        }
        let mut at = 0;
        while at < name.len() {
            if name[at] != other[at] {
                return false;
            }
            at += 1;
        }
        i += 1;
    }
    true
}

/// Declares a kernel's scalars.
macro_rules! scalars {
    (
        $(#[$meta:meta])*
        pub struct $type:ident { $($(#[$note:meta])* $field:ident: $scalar:ty),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(cubecl::prelude::CubeType, cubecl::prelude::CubeLaunch)]
        pub struct $type { $($(#[$note])* pub $field: $scalar),+ }

        impl $type {
            /// As arguments of a launch.
            pub(super) fn launch(self) -> ScalarsLaunch {
                ScalarsLaunch::new($(self.$field),+)
            }

            /// As arguments of a compilation.
            pub(super) fn compilation() -> ScalarsCompilationArg {
                ScalarsCompilationArg { $($field: ()),+ }
            }

            /// As a launch hands them to the generated code.
            pub(super) fn push(self, to: &mut cubecl::ScalarBuilder) {
                $(to.push(self.$field);)+
            }
        }
    };
}
pub(crate) use scalars;
