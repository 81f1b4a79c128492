//! The chain of hashes.
//!
//! A line is a JSON object whose last two members are `previous` and `hash`. `hash` is the SHA-256
//! of the bytes of the line before `,"hash":`, hexadecimal. What is hashed is text and not a value,
//! so that nobody has to agree on a canonical form of JSON.

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use serde::Deserialize;

use crate::audit::event::{AuditEvent, AuditRecord};

/// What the first line of a chain says about the line before it.
const FIRST_PREVIOUS_HASH: &str =
    "0000000000000000000000000000000000000000000000000000000000000000";

/// Where a chain stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HashChain {
    sequence: u64,
    previous: String,
}

impl Default for HashChain {
    fn default() -> Self {
        Self { sequence: 0, previous: FIRST_PREVIOUS_HASH.to_owned() }
    }
}

impl HashChain {
    /// Goes on after this line, if it is one of a chain.
    pub(super) fn resume_after(line: &str) -> Option<Self> {
        let link = HashChainLink::parse(line).ok()?;
        Some(Self { sequence: link.sequence, previous: link.hash.to_owned() })
    }

    /// The next line, with its newline.
    pub(super) fn next_line(
        &mut self,
        time: Timestamp,
        event: AuditEvent,
    ) -> Result<String, serde_json::Error> {
        let previous = self.previous.clone();
        let record = AuditRecord { sequence: self.sequence + 1, time, event, previous };
        let mut line = serde_json::to_string(&record)?;
        line.pop();
        let hash = sha256_hex(&line);
        line.push_str(HASH);
        line.push_str(&hash);
        line.push_str(END);
        line.push('\n');
        self.sequence += 1;
        self.previous = hash;
        Ok(line)
    }
}

const HASH: &str = ",\"hash\":\"";
const END: &str = "\"}";

/// What a line says about its place, checked against its bytes.
struct HashChainLink<'a> {
    sequence: u64,
    previous: String,
    hash: &'a str,
}

impl<'a> HashChainLink<'a> {
    fn parse(line: &'a str) -> Result<Self, &'static str> {
        #[derive(Deserialize)]
        struct ChainPosition {
            sequence: u64,
            previous: String,
        }
        let (body, rest) = line.rsplit_once(HASH).ok_or("it has no hash")?;
        let hash = rest.strip_suffix(END).ok_or("it does not end with its hash")?;
        if hash != sha256_hex(body) {
            return Err("it is not what was written: its hash differs");
        }
        let place: ChainPosition =
            serde_json::from_str(line).map_err(|_error| "it has no place in a chain")?;
        Ok(Self { sequence: place.sequence, previous: place.previous, hash })
    }
}

fn sha256_hex(text: &str) -> String {
    hex::encode(digest(&SHA256, text.as_bytes()))
}

/// Whether a line claims to be of a trail, as every one does that was written or torn there. On
/// standard output the trail shares its place with the lines of the log.
pub fn is_trail_line(line: &str) -> bool {
    line.starts_with("{\"sequence\":")
}

/// A chain that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainSummary {
    /// How many lines there are.
    pub lines: u64,
    /// How often a chain begins in them: after a start on standard output or with a new file.
    pub chain_starts: u64,
    /// The hash of the last line; empty where there is none.
    pub last_hash: String,
}

/// A chain does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ChainBreak {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// Checks the chain of some lines of a trail. What was before the first line cannot be known.
///
/// # Errors
/// The first line that was changed, or that does not follow on the line before it.
pub fn verify_chain<'a>(
    lines: impl IntoIterator<Item = &'a str>,
) -> Result<ChainSummary, ChainBreak> {
    let mut summary = ChainSummary { lines: 0, chain_starts: 0, last_hash: String::new() };
    let mut sequence = None;
    for line in lines {
        summary.lines += 1;
        let fail = |problem| ChainBreak { line: summary.lines, problem };
        let link = HashChainLink::parse(line).map_err(fail)?;
        let begins = link.sequence == 1 && link.previous == FIRST_PREVIOUS_HASH;
        if begins {
            summary.chain_starts += 1;
        } else if let Some(before) = sequence {
            if link.previous != summary.last_hash {
                return Err(fail("it does not follow on the line before: lines are missing"));
            }
            if link.sequence != before + 1 {
                return Err(fail("its number does not follow on the one before"));
            }
        }
        sequence = Some(link.sequence);
        link.hash.clone_into(&mut summary.last_hash);
    }
    Ok(summary)
}
