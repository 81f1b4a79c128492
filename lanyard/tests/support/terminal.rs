//! Runs a command on a terminal.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Runs a command on a terminal with this number of columns, and returns what the terminal received.
pub(crate) fn run_on_terminal(mut command: Command, columns: u16, term: &str) -> String {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let path = OsStr::from_bytes(name.as_bytes());
    let no_controlling_terminal = OFlags::NOCTTY.bits().cast_signed();
    let mut options = File::options();
    options.read(true).write(true).custom_flags(no_controlling_terminal);
    let terminal = options.open(path).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).unwrap();
    command.env("TERM", term);
    command.stdout(terminal.try_clone().unwrap()).stderr(terminal);
    let mut child = command.spawn().unwrap();
    // The command holds the terminal; the master reads until its last user has closed it.
    drop(command);
    let mut received = Vec::new();
    let mut chunk = [0; 4096];
    let mut master = File::from(master);
    // Linux reports a closed terminal as an input/output error.
    while let Ok(length @ 1..) = master.read(&mut chunk) {
        received.extend_from_slice(&chunk[..length]);
    }
    child.wait().unwrap();
    String::from_utf8(received).unwrap()
}
