//! An output that is used again and again, and whose padding heads are therefore zero already.

use super::{Buffers, PaddingHeads, launch_with_padding};
use crate::{Device, Error, Result};
use cubecl::server::Handle;
use mla_prologue_operator::{Invalid, prologue::Problem};

/// A `q_out` buffer that remembers which of its rows are zero. A call on it writes only the live heads
/// where the padding heads are known to be zero from an earlier call, which at few live heads saves most of
/// the memory traffic.
///
/// Whatever the sequence of problems, the output of each is what [`launch`](super::launch) would have
/// written: a call that finds rows that may not be zero writes them all. Only this type writes to the
/// buffer, and it gives the buffer away to be read only.
///
/// ```
/// # use mla_prologue_kernel::{Device, prologue::{Workspace, upload}};
/// # use mla_prologue_operator::prologue::{Query, RotaryTable, Spec};
/// # let problem = Spec::new(1, RotaryTable::new(1)).query(Query::new(1, 64)).validate()?;
/// # let tensors = problem.sizes().map(|bytes| vec![0; bytes]);
/// let device = Device::open("cpu")?;
/// let mut workspace = Workspace::new(&device, problem.sizes().q_out);
/// let buffers = upload(&device, &problem, &tensors);
/// assert!(!workspace.padding_is_zero(&problem));
/// workspace.launch(&device, &problem, &buffers)?; // writes 64 heads
/// assert!(workspace.padding_is_zero(&problem));
/// workspace.launch(&device, &problem, &buffers)?; // writes 1
/// assert_eq!(workspace.read(&device)?.len(), 64 * 1024);
/// # Ok::<(), mla_prologue_kernel::Error>(())
/// ```
#[derive(Debug)]
pub struct Workspace {
    buffer: Handle,
    /// What is known of the buffer's contents.
    zero: Option<Zero>,
    /// Bytes of the last call's output.
    used: usize,
}

/// Of the first `tokens` tokens, in rows of this shape, the heads from `live_heads` on are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zero {
    tokens: usize,
    live_heads: usize,
    padded_heads: usize,
    /// Outputs in 16 bits and in FP8 lie differently.
    fp8: bool,
}

impl Workspace {
    /// A buffer of that many bytes: [`Problem::sizes`]`.q_out` of
    /// the largest problem that it is for.
    pub fn new(device: &Device, bytes: usize) -> Self {
        Self { buffer: device.client().empty(bytes.max(16)), zero: None, used: 0 }
    }

    /// Bytes that it holds.
    pub fn capacity(&self) -> usize {
        self.buffer.size_in_used() as usize
    }

    /// Would a call for this problem find its padding heads zeroed?
    pub fn padding_is_zero(&self, problem: &Problem) -> bool {
        let (Some(known), Some(wanted)) = (self.zero, Zero::after(problem)) else { return false };
        known.tokens >= wanted.tokens
            && known.live_heads <= wanted.live_heads
            && (known.padded_heads, known.fp8) == (wanted.padded_heads, wanted.fp8)
    }

    /// [`launch`](super::launch) into this buffer; `buffers.q_out` is not used.
    ///
    /// # Errors
    /// Those of [`launch`](super::launch), a problem without queries, or one whose output is larger than
    /// the buffer.
    pub fn launch(&mut self, device: &Device, problem: &Problem, buffers: &Buffers) -> Result<()> {
        let Some(after) = Zero::after(problem) else {
            return Err(Invalid::new("work", "kv", "both or q with a workspace for q_out").into());
        };
        let bytes = problem.sizes().q_out;
        if bytes > self.capacity() {
            let must = format!("at least the {bytes} bytes of q_out");
            return Err(Invalid::new(
                "the workspace",
                format_args!("{} bytes", self.capacity()),
                must,
            )
            .into());
        }
        let buffers = Buffers { q_out: Some(self.buffer.clone()), ..buffers.clone() };
        let known = self.zero.filter(|_| self.padding_is_zero(problem));
        let padding = if known.is_some() { PaddingHeads::KnownZero } else { PaddingHeads::Written };
        // Until the call is known to be queued, nothing is known.
        self.zero = None;
        launch_with_padding(device, problem, &buffers, padding)?;
        if known.is_none() {
            let queued = device.client().check([&self.buffer]);
            queued.map_err(|error| Error::failed("queueing the kernel", error))?;
        }
        // The tokens past this call's keep what they had: more live heads now, the same zeros.
        self.zero = Some(known.map_or(after, |known| Zero { tokens: known.tokens, ..after }));
        self.used = bytes;
        Ok(())
    }

    /// Reads the last call's output back.
    ///
    /// # Errors
    /// A device that failed.
    pub fn read(&self, device: &Device) -> Result<Vec<u8>> {
        device.read(&self.buffer, self.used)
    }

    /// The buffer, for a kernel that reads the output.
    ///
    /// # Safety
    /// The caller must not write to it: what is known to be zero must stay so. A captured graph that holds a call
    /// on this workspace must not be replayed after a call with more live heads.
    pub unsafe fn buffer(&self) -> Handle {
        self.buffer.clone()
    }
}

impl Zero {
    /// What is known after a call that wrote everything.
    fn after(problem: &Problem) -> Option<Self> {
        problem.spec().query.map(|query| Self {
            tokens: problem.spec().tokens,
            live_heads: query.heads,
            padded_heads: query.padded_heads,
            fp8: query.scale.is_some(),
        })
    }
}
