//! Runs in a pod and tells what it sees of a mounted volume.
//!
//! ```text
//! witness watch MILLISECONDS PATH…   reads the files again and again; a line for every change
//! witness read PATH                  the bytes of a file
//! witness stat PATH                  mode, owner and group of what is there
//! witness write PATH                 tries to write, and says how that ended
//! ```
//!
//! `watch` prints one JSON object for each event: `seen` with the length and a digest of a file
//! whose content is another one than before, `lost` with the error of a file that cannot be read
//! any more, and `alive` with the number of reads so far, about once a second. The digest is FNV-1a: it
//! tells contents apart, and values stay out of the pod's log.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

const USAGE: &str = "usage: witness watch MILLISECONDS PATH… | read PATH | stat PATH | write PATH";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["watch", pause, paths @ ..] if !paths.is_empty() => match pause.parse() {
            Ok(pause) => watch(Duration::from_millis(pause), paths),
            Err(_) => return misused(),
        },
        ["read", path] => fs::read(path).and_then(|bytes| io::stdout().write_all(&bytes)),
        ["stat", path] => stat(path),
        ["write", path] => write(path),
        _ => return misused(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn misused() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// What the last look at a file gave: its digest, or that it could not be read.
type Seen<'a> = BTreeMap<&'a str, Option<u64>>;

#[expect(
    clippy::disallowed_methods,
    reason = "a program of its own, without our crates: it has no other clock"
)]
fn watch(pause: Duration, paths: &[&str]) -> io::Result<()> {
    let rounds = (1_000 / pause.as_millis().max(1)).max(1);
    let mut seen = Seen::new();
    let mut reads = 0;
    loop {
        for _ in 0..rounds {
            for path in paths {
                look(path, &mut seen)?;
                reads += 1;
            }
            thread::sleep(pause);
        }
        say(&format!(r#"{{"event":"alive","reads":{reads}}}"#))?;
    }
}

/// Reads a file once and tells what is new about it.
fn look<'a>(path: &'a str, seen: &mut Seen<'a>) -> io::Result<()> {
    match fs::read(path) {
        Ok(bytes) => {
            let digest = digest(&bytes);
            if seen.insert(path, Some(digest)) != Some(Some(digest)) {
                let (path, length) = (quoted(path), bytes.len());
                say(&format!(
                    r#"{{"event":"seen","path":{path},"length":{length},"digest":"{digest:016x}"}}"#
                ))?;
            }
        }
        Err(error) => {
            if seen.insert(path, None) != Some(None) {
                let (path, error) = (quoted(path), quoted(&error.to_string()));
                say(&format!(r#"{{"event":"lost","path":{path},"error":{error}}}"#))?;
            }
        }
    }
    Ok(())
}

fn stat(path: &str) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let (mode, owner, group) = (found.mode() & 0o7777, found.uid(), found.gid());
    say(&format!(r#"{{"mode":"{mode:04o}","owner":{owner},"group":{group}}}"#))
}

/// Whether a file can be written is what is asked, so a refusal is an answer.
fn write(path: &str) -> io::Result<()> {
    let error = fs::write(path, b"written").err().map_or(String::new(), |it| it.to_string());
    say(&format!(r#"{{"error":{}}}"#, quoted(&error)))
}

/// A line that is there when it has been printed.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// FNV-1a, 64 bits.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A JSON string. Paths and errors of the system hold no control characters beyond these.
fn quoted(text: &str) -> String {
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
            assert_eq!(digest(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn strings_are_json() {
        assert_eq!(quoted("a\"b\\c\nd"), r#""a\"b\\c d""#);
    }

    #[test]
    fn a_file_is_told_when_it_is_another_one_and_when_it_is_lost() {
        let mut seen = Seen::new();
        look("/proc/self/cmdline", &mut seen).expect("standard output is there");
        assert!(seen["/proc/self/cmdline"].is_some());
        look("/nowhere", &mut seen).expect("standard output is there");
        assert_eq!(seen["/nowhere"], None);
    }
}
