//! Whether a program is there to be started.

use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// Why this program cannot be started, if that is known without trying.
pub(super) fn missing(program: &str) -> Option<io::Error> {
    if program.contains('/') {
        return refusal(Path::new(program));
    }
    // Without a path the system has one of its own, and only a try can tell.
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path).map(|folder| folder.join(program));
    // As the system does: the first that can be started, and one that is there but cannot be is
    // told before none at all.
    let mut why = io::Error::from(Errno::NOENT);
    for place in places {
        match refusal(&place) {
            None => return None,
            Some(error) if error.kind() == ErrorKind::PermissionDenied => why = error,
            Some(_) => {}
        }
    }
    Some(why)
}

fn refusal(place: &Path) -> Option<io::Error> {
    let found = access(place, Access::EXEC_OK).err().map(io::Error::from);
    // A folder can be entered, which is the same bit.
    let folder = || place.is_dir().then(|| io::Error::from(Errno::ACCESS));
    found.or_else(folder)
}

/// Whether no message can be worked on after this: the program is not one. A process too many, or
/// a message whose attributes are too much for an environment, says nothing about the next.
pub(super) fn is_fault_of(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(program: &str) -> Option<ErrorKind> {
        missing(program).map(|error| error.kind())
    }

    #[test]
    fn programs_are_found_as_the_system_finds_them() {
        assert_eq!([kind("sh"), kind("/bin/sh")], [None, None]);
        assert_eq!(kind("no-such-program-anywhere"), Some(ErrorKind::NotFound));
        assert_eq!(kind("/no/such/program"), Some(ErrorKind::NotFound));
        assert_eq!(kind(""), Some(ErrorKind::PermissionDenied));
        for no_program in ["/", "/etc/passwd"] {
            assert_eq!(kind(no_program), Some(ErrorKind::PermissionDenied), "{no_program}");
        }
    }

    #[test]
    fn only_faults_of_the_program_are_for_every_message() {
        for (errno, fault) in [
            (Errno::NOENT, true),
            (Errno::ACCESS, true),
            (Errno::NOTDIR, true),
            (Errno::NOEXEC, true),
            (Errno::TOOBIG, false),
            (Errno::AGAIN, false),
            (Errno::MFILE, false),
            (Errno::TXTBSY, false),
        ] {
            assert_eq!(is_fault_of(&io::Error::from(errno)), fault, "{errno}");
        }
    }
}
