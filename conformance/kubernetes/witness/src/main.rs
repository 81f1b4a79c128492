//! A program for pods of the suite `node`. It prints what it reads from a mounted volume.
//!
//! ```text
//! witness watch MILLISECONDS PATH…   reads the files repeatedly and prints a line for every change
//! witness read PATH                  prints the bytes of a file
//! witness stat PATH                  prints mode, owner and group of a file
//! witness write PATH                 tries to write and prints the error
//! ```
//!
//! `watch` prints one JSON object for each event: `changed` with the length and the digest of a file whose
//! content changed, `unreadable` with the error of a file that became unreadable, and `alive` with the number of
//! reads so far, about once a second. The digest is FNV-1a, so that the values are not in the pod's log.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

const USAGE_TEXT: &str =
    "usage: witness watch MILLISECONDS PATH… | read PATH | stat PATH | write PATH";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["watch", pause, paths @ ..] if !paths.is_empty() => match pause.parse() {
            Ok(pause) => watch_files(Duration::from_millis(pause), paths),
            Err(_) => return usage_error(),
        },
        ["read", path] => fs::read(path).and_then(|bytes| io::stdout().write_all(&bytes)),
        ["stat", path] => print_file_metadata(path),
        ["write", path] => try_write(path),
        _ => return usage_error(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage_error() -> ExitCode {
    eprintln!("{USAGE_TEXT}");
    ExitCode::from(2)
}

/// The last digest of each file, or `None` if the file could not be read.
type LastDigests<'a> = BTreeMap<&'a str, Option<u64>>;

#[expect(
    clippy::disallowed_methods,
    reason = "a separate program without the crates of the workspace has no other clock"
)]
fn watch_files(pause: Duration, paths: &[&str]) -> io::Result<()> {
    let rounds = (1_000 / pause.as_millis().max(1)).max(1);
    let mut observed = LastDigests::new();
    let mut reads = 0;
    loop {
        for _ in 0..rounds {
            for path in paths {
                read_and_report_change(path, &mut observed)?;
                reads += 1;
            }
            thread::sleep(pause);
        }
        print_line(&format!(r#"{{"event":"alive","reads":{reads}}}"#))?;
    }
}

/// Reads a file once and prints an event if its content or its readability changed.
fn read_and_report_change<'a>(path: &'a str, observed: &mut LastDigests<'a>) -> io::Result<()> {
    match fs::read(path) {
        Ok(bytes) => {
            let digest = fnv1a_digest(&bytes);
            if observed.insert(path, Some(digest)) != Some(Some(digest)) {
                let (path, length) = (json_string(path), bytes.len());
                print_line(&format!(
                    r#"{{"event":"changed","path":{path},"length":{length},"digest":"{digest:016x}"}}"#
                ))?;
            }
        }
        Err(error) => {
            if observed.insert(path, None) != Some(None) {
                let (path, error) = (json_string(path), json_string(&error.to_string()));
                print_line(&format!(r#"{{"event":"unreadable","path":{path},"error":{error}}}"#))?;
            }
        }
    }
    Ok(())
}

fn print_file_metadata(path: &str) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let (mode, owner, group) = (found.mode() & 0o7777, found.uid(), found.gid());
    print_line(&format!(r#"{{"mode":"{mode:04o}","owner":{owner},"group":{group}}}"#))
}

/// Prints the error of a write. A failed write is a result, not an error of this program.
fn try_write(path: &str) -> io::Result<()> {
    let error = fs::write(path, b"written").err().map_or(String::new(), |it| it.to_string());
    print_line(&format!(r#"{{"error":{}}}"#, json_string(&error)))
}

/// Prints a line and flushes it.
fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// The 64-bit FNV-1a digest.
fn fnv1a_digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Formats a JSON string. Control characters become spaces.
fn json_string(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character.is_control() => quoted.push(' '),
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_fnv_1a() {
        for (text, expected) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a_digest(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn json_string_escapes_special_characters() {
        assert_eq!(json_string("a\"b\\c\nd"), r#""a\"b\\c d""#);
    }

    #[test]
    fn changed_and_unreadable_files_are_reported() {
        let mut observed = LastDigests::new();
        read_and_report_change("/proc/self/cmdline", &mut observed)
            .expect("standard output is writable");
        assert!(observed["/proc/self/cmdline"].is_some());
        read_and_report_change("/nowhere", &mut observed).expect("standard output is writable");
        assert_eq!(observed["/nowhere"], None);
    }
}
