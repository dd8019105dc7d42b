use crate::{HEAD_DIM, Result, error::require};

/// What an operator does with one of its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// It is read.
    Read,
    /// It is written whole, and not read.
    Write,
    /// It is updated in place.
    Update,
}

/// Declares the tensors of an operator, once: a struct with a field of any type for each of them. Sizes, host tensors,
/// device buffers and kernel arguments are instances of it.
macro_rules! tensors {
    (
        $(#[$meta:meta])*
        pub struct $type:ident { $($(#[$note:meta])* $field:ident: $access:ident),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type<T> { $($(#[$note])* pub $field: T),+ }

        impl $type<$crate::Access> {
            /// What the operator does with each of them.
            pub const ACCESS: Self = Self { $($field: $crate::Access::$access),+ };
        }

        impl $type<&'static str> {
            /// Their names.
            pub const NAMES: Self = Self { $($field: stringify!($field)),+ };
            /// Their names in the order of the list, which is that of a kernel's arguments.
            pub const ORDER: &'static [&'static str] = &[$(stringify!($field)),+];
        }

        impl<T> $type<T> {
            /// Applies a function to each.
            pub fn map<U>(self, mut function: impl FnMut(T) -> U) -> $type<U> {
                $type { $($field: function(self.$field)),+ }
            }

            /// Pairs each with that of the same name.
            pub fn zip<U>(self, other: $type<U>) -> $type<(T, U)> {
                $type { $($field: (self.$field, other.$field)),+ }
            }

            /// References to each.
            pub fn as_ref(&self) -> $type<&T> {
                $type { $($field: &self.$field),+ }
            }

            /// Each with its name, in the order of the kernel's arguments.
            pub fn named(self) -> impl DoubleEndedIterator<Item = (&'static str, T)> + ExactSizeIterator {
                [$((stringify!($field), self.$field)),+].into_iter()
            }
        }

        impl $type<Vec<u8>> {
            /// What is read, and what is written or updated; each is empty in the other.
            pub fn split_mut(&mut self) -> ($type<&[u8]>, $type<&mut [u8]>) {
                $(let $field: (&[u8], &mut [u8]) = match $crate::Access::$access {
                    $crate::Access::Read => (&self.$field, &mut []),
                    $crate::Access::Write | $crate::Access::Update => (&[], &mut self.$field),
                };)+
                ($type { $($field: $field.0),+ }, $type { $($field: $field.1),+ })
            }
        }

        impl $type<usize> {
            /// Compares with actual sizes in bytes, which may be larger where `exact` is false.
            ///
            /// # Errors
            /// The first tensor that is too small, or not of its size.
            pub fn check(self, actual: $type<usize>, exact: bool) -> $crate::Result<()> {
                for (name, (wanted, bytes)) in self.zip(actual).named() {
                    if bytes < wanted || (exact && bytes != wanted) {
                        let least = if exact { "" } else { "at least " };
                        let must = format_args!("{least}{wanted} bytes");
                        return Err($crate::Invalid::size(name, bytes, must));
                    }
                }
                Ok(())
            }
        }
    };
}
pub(crate) use tensors;

/// Declares methods that set a field each, for a specification that is built step by step.
macro_rules! setters {
    () => {};
    ($(#[$note:meta])* $field:ident: Option<$type:ty>, $($rest:tt)*) => {
        $(#[$note])*
        #[must_use]
        pub fn $field(mut self, $field: impl Into<Option<$type>>) -> Self {
            self.$field = $field.into();
            self
        }
        $crate::tensors::setters! { $($rest)* }
    };
    ($(#[$note:meta])* $field:ident: $type:ty, $($rest:tt)*) => {
        $(#[$note])*
        #[must_use]
        pub const fn $field(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
        $crate::tensors::setters! { $($rest)* }
    };
}
pub(crate) use setters;

/// Bytes from the first to the last row of 16-bit values, given how many rows there are and how far
/// apart, in values, in each dimension.
pub(crate) fn extent(dimensions: &[(usize, usize)]) -> Option<usize> {
    let mut values = HEAD_DIM;
    for &(count, stride) in dimensions {
        let Some(steps) = count.checked_sub(1) else { return Some(0) };
        values = values.checked_add(steps.checked_mul(stride)?)?;
    }
    values.checked_mul(2)
}

/// Rows begin at a word of 16 bytes, and the kernel counts strides in these words, in 32 bits.
pub(crate) fn check_stride(name: &str, stride: usize) -> Result<()> {
    require(
        stride.is_multiple_of(8) && stride / 8 < u32::MAX as usize,
        name,
        stride,
        "a multiple of 8 values (16 bytes), below 2^35",
    )
}
