//! The hash chain of the audit trail.
//!
//! A line is a JSON object whose last two members are `previous` and `hash`. `hash` is the hexadecimal
//! SHA-256 of the bytes of the line before `,"hash":`. The hash covers the text instead of the JSON value, so
//! that no canonical form of JSON is needed.

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use serde::Deserialize;

use crate::audit::event::{AuditEvent, AuditRecord};

/// The `previous` hash of the first line of a chain.
const FIRST_PREVIOUS_HASH: &str =
    "0000000000000000000000000000000000000000000000000000000000000000";

/// The position of a chain.
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
    /// Continues the chain after this line, if it is a line of a chain.
    pub(super) fn resume_after(line: &str) -> Option<Self> {
        let link = HashChainLink::parse(line).ok()?;
        Some(Self { sequence: link.sequence, previous: link.hash.to_owned() })
    }

    /// Returns the next line, including its newline.
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

/// The position of a line in its chain, verified against its bytes.
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
        let position: ChainPosition =
            serde_json::from_str(line).map_err(|_error| "it has no place in a chain")?;
        Ok(Self { sequence: position.sequence, previous: position.previous, hash })
    }
}

fn sha256_hex(text: &str) -> String {
    hex::encode(digest(&SHA256, text.as_bytes()))
}

/// Returns whether a line has the form of the audit trail, as every line does, even a partial one. On
/// standard output, the trail is mixed with the lines of the log.
pub fn is_trail_line(line: &str) -> bool {
    line.starts_with("{\"sequence\":")
}

/// The summary of a valid chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainSummary {
    /// The number of lines.
    pub lines: u64,
    /// The number of chain starts: one per process start on standard output, and one per new file.
    pub chain_starts: u64,
    /// The hash of the last line; empty without lines.
    pub last_hash: String,
}

/// The first line of an audit trail that does not continue the chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ChainBreak {
    /// The line number, from 1.
    pub line: u64,
    /// The problem of the line.
    pub problem: &'static str,
}

/// Verifies the chain of a part of an audit trail. The lines before the first one are not covered.
///
/// # Errors
/// Returns the first line that was changed, or that does not follow the line before it.
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
