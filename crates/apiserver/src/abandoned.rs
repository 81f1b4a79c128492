//! Control planes whose starter was killed: both servers run on, with the tokens in their directory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_clock::SharedClock;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::control_plane::{ControlPlane, PREFIX};
use crate::error::{ControlPlaneError, file_error};
use crate::locked_directory::{Abandoned, find_abandoned};

impl ControlPlane {
    /// Ends the control planes in `place` whose starters are gone, and removes their directories.
    /// Gives the directory of each, or why it is still there; one does not keep another from going.
    pub async fn clear_abandoned(
        place: &Path,
        clock: &SharedClock,
    ) -> Vec<Result<PathBuf, ControlPlaneError>> {
        let found = match find_abandoned(place, PREFIX) {
            Ok(found) => found,
            Err(source) => return vec![Err(file_error("read", place)(source))],
        };
        let mut cleared = Vec::new();
        for abandoned in found {
            cleared.push(clear(abandoned, clock).await);
        }
        cleared
    }
}

async fn clear(abandoned: Abandoned, clock: &SharedClock) -> Result<PathBuf, ControlPlaneError> {
    let path = abandoned.path().to_owned();
    let began = clock.monotonic();
    while end_servers(&path) {
        if clock.monotonic().saturating_sub(began) > PATIENCE {
            return Err(ControlPlaneError::Immortal { directory: path });
        }
        clock.sleep(PAUSE).await;
    }
    abandoned.remove().map_err(file_error("remove", &path))?;
    Ok(path)
}

/// Kills the servers of a directory; returns whether there were any.
fn end_servers(directory: &Path) -> bool {
    let marks = [store_mark(directory), server_mark(directory)];
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut were_there = false;
    for id in ids.filter_map(Pid::from_raw).filter(|id| is_started_with(*id, &marks)) {
        were_there = true;
        // The descriptor holds on to one process; the second look proves which one.
        if let Ok(process) = pidfd_open(id, PidfdFlags::empty())
            && is_started_with(id, &marks)
        {
            // Who ended meanwhile is not there at the next look; who cannot be ended is.
            pidfd_send_signal(&process, Signal::KILL).unwrap_or_default();
        }
    }
    were_there
}

/// Whether a process of this user was started with one of these arguments. The dead have none.
fn is_started_with(id: Pid, arguments: &[OsString]) -> bool {
    let process = Path::new("/proc").join(id.as_raw_nonzero().to_string());
    let is_ours = process
        .metadata()
        .is_ok_and(|process| process.uid() == rustix::process::geteuid().as_raw());
    let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
    is_ours
        && line
            .split(|byte| *byte == 0)
            .any(|told| arguments.iter().any(|argument| argument.as_bytes() == told))
}

/// The argument by which the store of a directory is known.
pub(crate) fn store_mark(directory: &Path) -> OsString {
    marked("--data-dir=", &directory.join("etcd"))
}

/// The argument by which the API server of a directory is known.
pub(crate) fn server_mark(directory: &Path) -> OsString {
    marked("--token-auth-file=", &directory.join(crate::control_plane::TOKENS))
}

fn marked(flag: &str, path: &Path) -> OsString {
    let mut mark = OsString::from(flag);
    mark.push(path);
    mark
}

/// How long a server may take to end once it was killed.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use lanyard_clock::SystemClock;

    use super::*;
    use crate::locked_directory::LockedDirectory;

    /// A process that does nothing and has this argument.
    fn process(argument: &OsString) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "read line", "sh"]).arg(argument);
        command.stdin(Stdio::piped()).spawn().unwrap()
    }

    #[tokio::test]
    async fn only_servers_whose_starter_is_gone_are_ended() {
        let place = tempfile::tempdir().unwrap();
        let living = LockedDirectory::make_in(place.path(), PREFIX).unwrap();
        let mut spared = process(&store_mark(living.path()));
        let gone = LockedDirectory::make_in(place.path(), PREFIX).unwrap().abandon().unwrap();
        let mut ended = [process(&store_mark(&gone)), process(&server_mark(&gone))];
        // Whoever only looks at a file there is none of the two.
        let mut reader = process(&gone.join("etcd.log").into_os_string());

        let clock = SystemClock::shared();
        let cleared = ControlPlane::clear_abandoned(place.path(), &clock).await;
        let cleared: Vec<_> = cleared.into_iter().map(Result::unwrap).collect();
        assert_eq!(cleared, std::slice::from_ref(&gone));
        assert!(!gone.exists() && living.path().exists());
        for server in &mut ended {
            assert!(!server.wait().unwrap().success(), "it was killed");
        }
        for other in [&mut spared, &mut reader] {
            assert!(other.try_wait().unwrap().is_none(), "it is none of ours");
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }
}
