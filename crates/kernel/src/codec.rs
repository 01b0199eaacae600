//! Bytes in and out, for the few formats the kernel itself writes, and the envelope that makes a
//! machine's commands versioned.
//!
//! A machine's command is `[tag][version][postcard body]`. A tag is never reused; a body that must
//! change gets the next version, and the machine keeps reading the old one. So a newer binary reads
//! an older log. What is not a command but outlives the binary that wrote it (rows, remembered
//! replies, effects) is `[version][postcard body]`.

use std::cell::Cell;

use bytes::{Buf, BufMut, Bytes};
use serde::{Deserialize, Serialize};

use crate::machine::Unreadable;

/// Takes fields off the front of a byte string, never past its end.
#[derive(Clone, Debug)]
pub struct Reader {
    bytes: Bytes,
}

impl Reader {
    /// Reads from the front of `bytes`.
    #[must_use]
    pub fn new(bytes: Bytes) -> Reader {
        Reader { bytes }
    }

    fn need(&self, len: usize) -> Result<(), Unreadable> {
        if self.bytes.len() < len { Err(Unreadable::Short) } else { Ok(()) }
    }

    /// One byte.
    ///
    /// # Errors
    /// [`Unreadable::Short`] at the end.
    pub fn u8(&mut self) -> Result<u8, Unreadable> {
        self.need(1)?;
        Ok(self.bytes.get_u8())
    }

    /// Two bytes, big-endian.
    ///
    /// # Errors
    /// [`Unreadable::Short`] at the end.
    pub fn u16(&mut self) -> Result<u16, Unreadable> {
        self.need(2)?;
        Ok(self.bytes.get_u16())
    }

    /// Four bytes, big-endian.
    ///
    /// # Errors
    /// [`Unreadable::Short`] at the end.
    pub fn u32(&mut self) -> Result<u32, Unreadable> {
        self.need(4)?;
        Ok(self.bytes.get_u32())
    }

    /// Eight bytes, big-endian.
    ///
    /// # Errors
    /// [`Unreadable::Short`] at the end.
    pub fn u64(&mut self) -> Result<u64, Unreadable> {
        self.need(8)?;
        Ok(self.bytes.get_u64())
    }

    /// Eight bytes, big-endian, signed.
    ///
    /// # Errors
    /// [`Unreadable::Short`] at the end.
    pub fn i64(&mut self) -> Result<i64, Unreadable> {
        self.need(8)?;
        Ok(self.bytes.get_i64())
    }

    /// Sixteen bytes.
    ///
    /// # Errors
    /// [`Unreadable::Short`] at the end.
    pub fn array16(&mut self) -> Result<[u8; 16], Unreadable> {
        self.need(16)?;
        let mut array = [0; 16];
        self.bytes.copy_to_slice(&mut array);
        Ok(array)
    }

    /// A length in four bytes, and as many bytes; shared, not copied.
    ///
    /// # Errors
    /// [`Unreadable::Short`] when there are fewer.
    pub fn bytes(&mut self) -> Result<Bytes, Unreadable> {
        let len = self.u32()? as usize;
        self.need(len)?;
        Ok(self.bytes.split_to(len))
    }

    /// What has not been read.
    #[must_use]
    pub fn rest(self) -> Bytes {
        self.bytes
    }

    /// That nothing is left over.
    ///
    /// # Errors
    /// [`Unreadable::Long`] when something is.
    pub fn end(&self) -> Result<(), Unreadable> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Unreadable::Long) }
    }
}

/// Appends a length in four bytes and the bytes.
pub fn put_bytes(out: &mut impl BufMut, bytes: &[u8]) {
    out.put_u32(u32::try_from(bytes.len()).expect("no field reaches 4 GiB"));
    out.put_slice(bytes);
}

/// Splits `[tag][version][body]`.
///
/// # Errors
/// [`Unreadable::Short`] when there are not even two bytes.
pub fn split_command(command: &[u8]) -> Result<(u8, u8, &[u8]), Unreadable> {
    match command {
        [tag, version, body @ ..] => Ok((*tag, *version, body)),
        _ => Err(Unreadable::Short),
    }
}

/// `[tag][version][body]`.
#[must_use]
pub fn pack(tag: u8, version: u8, body: &impl Serialize) -> Bytes {
    encoded(&[tag, version], body).into()
}

/// Buffers that are kept for the next value are at most this large.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// What a body is behind a prefix. A command with many messages would else be moved in memory again
/// and again while it grows.
fn encoded(prefix: &[u8], body: &impl Serialize) -> Vec<u8> {
    thread_local!(static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) });
    let mut scratch = SCRATCH.take();
    scratch.extend_from_slice(prefix);
    let mut scratch = postcard::to_extend(body, scratch).expect("plain data encodes");
    let bytes = scratch.as_slice().to_vec();
    if scratch.capacity() <= SCRATCH_BYTES_MAX {
        scratch.clear();
        SCRATCH.set(scratch);
    }
    bytes
}

/// Reads the body of [`pack`] back. `whose` it is, is for the message.
///
/// # Errors
/// [`Unreadable::Body`] when it is something else, [`Unreadable::Long`] when something follows it.
pub fn unpack<'a, T: Deserialize<'a>>(
    whose: &'static str,
    body: &'a [u8],
) -> Result<T, Unreadable> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(Unreadable::Long),
        Err(error) => Err(Unreadable::Body { whose, why: error.to_string() }),
    }
}

/// `[1][body]`. What changes gets a version of its own, and its own reader.
#[must_use]
pub fn versioned(body: &impl Serialize) -> Vec<u8> {
    versioned_as(1, body)
}

/// `[version][body]`, of what has changed since its first version.
#[must_use]
pub fn versioned_as(version: u8, body: &impl Serialize) -> Vec<u8> {
    encoded(&[version], body)
}

/// Reads [`versioned`] back.
///
/// # Errors
/// [`Unreadable`] when it is of a newer binary, or something else than `what`.
pub fn read_versioned<'a, T: Deserialize<'a>>(
    what: &'static str,
    bytes: &'a [u8],
) -> Result<T, Unreadable> {
    match bytes {
        [1, body @ ..] => unpack(what, body),
        [version, ..] => Err(Unreadable::Version { what, version: *version }),
        [] => Err(Unreadable::Short),
    }
}
