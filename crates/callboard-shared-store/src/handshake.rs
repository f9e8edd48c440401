//! The first frames of a connection: both sides have to be of one version of the protocol.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::wire::{Wire, structs};

/// Raised with every change of what is sent.
pub(crate) const VERSION: u32 = 5;
/// How long each side waits for the other's first frame.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// The longest first frame.
const MAX_FRAME: u32 = 4096;

/// The first frame of the process that connects.
#[derive(Debug)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    /// The version of its package.
    pub(crate) build: String,
}

/// The answer; an error says what to do.
pub(crate) type Welcome = Result<u32, String>;

structs! { Hello { version, build } }

impl Hello {
    fn new() -> Self {
        Self { version: VERSION, build: env!("CARGO_PKG_VERSION").to_owned() }
    }

    pub(crate) fn answer(&self) -> Welcome {
        if self.version == VERSION {
            return Ok(VERSION);
        }
        Err(format!(
            "process {} has it open, with callboard {} and protocol {VERSION}, and this is callboard {} with protocol {}: stop that \
             process, or use the same version",
            std::process::id(),
            env!("CARGO_PKG_VERSION"),
            self.build,
            self.version
        ))
    }
}

/// Introduces this process; the inner error is the other's refusal.
pub(crate) fn introduce(stream: &mut UnixStream) -> io::Result<Welcome> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let hello = Hello::new().to_bytes();
    let length = u32::try_from(hello.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_le_bytes()[..], &hello].concat())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_FRAME {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut welcome = vec![0; length as usize];
    stream.read_exact(&mut welcome)?;
    Welcome::from_bytes(&welcome).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
