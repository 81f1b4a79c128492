//! The request log: one entry per request, without secrets.
//!
//! No entry contains a body, a header other than `User-Agent`, or the value of a query parameter other than
//! `api-version`.

use std::collections::VecDeque;

use jiff::Timestamp;
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::fault_rules::FaultPhase;
use lanyard_vocabulary::EntraClientId;
use serde::Serialize;

/// A recorded request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RequestLogEntry {
    /// The sequence number of the request, from 1.
    pub sequence: u64,
    /// When the reply was ready, in the emulator's time.
    pub time: Timestamp,
    /// The service, such as `entra`; `None` for a host that is not Azure's.
    pub service: Option<&'static str>,
    /// The id of the operation, such as `Token_Post`; `None` if the emulator does not implement it.
    pub operation: Option<&'static str>,
    pub method: String,
    /// The host, without a port.
    pub host: String,
    /// The path, without the query.
    pub path: String,
    /// The `api-version` of the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The `User-Agent` of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_agent: Option<String>,
    /// The status of the reply.
    pub status: u16,
    /// Whether the request was sent over TLS.
    pub tls: bool,
    /// The application that sent the request or requested a token, if it was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<EntraClientId>,
    /// The duration of the request, in microseconds of the emulator's clock.
    pub(crate) micros: u64,
    /// Why the request was rejected.
    #[serde(rename = "rejection", skip_serializing_if = "Option::is_none")]
    pub rejection: Option<String>,
    /// Whether the emulator does not implement the operation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
    /// The fault rule that changed the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl RequestLogEntry {
    /// The entry of a tunnel or a TLS handshake with an injected fault. No request follows it, so its status
    /// is 0.
    pub(crate) fn of_connection(
        phase: FaultPhase,
        service: AzureService,
        host: &str,
        rule: String,
        now: Timestamp,
    ) -> Self {
        let is_handshake = phase == FaultPhase::Handshake;
        Self {
            sequence: 0,
            time: now,
            service: Some(service.name()),
            operation: None,
            method: if is_handshake { "TLS" } else { "CONNECT" }.to_owned(),
            host: host.to_owned(),
            path: String::new(),
            api_version: None,
            user_agent: None,
            status: 0,
            tls: is_handshake,
            caller: None,
            micros: 0,
            rejection: Some("injected fault".to_owned()),
            missing: false,
            fault: Some(rule),
        }
    }
}

/// The entries, oldest first; the oldest are dropped when the log is full.
#[derive(Debug)]
pub struct RequestLog {
    entries: VecDeque<RequestLogEntry>,
    last_sequence: u64,
}

/// The maximum number of entries.
const MAX_ENTRIES: usize = 10_000;
/// The maximum length of a recorded untrusted text.
const MAX_TEXT_BYTES: usize = 2_048;

impl Default for RequestLog {
    fn default() -> Self {
        // A queue that grows would have room for up to twice as many entries.
        Self { entries: VecDeque::with_capacity(MAX_ENTRIES), last_sequence: 0 }
    }
}

impl RequestLog {
    /// Appends an entry and sets its sequence number. Returns the oldest entry if the log was full.
    pub fn append(&mut self, mut entry: RequestLogEntry) -> Option<RequestLogEntry> {
        self.last_sequence += 1;
        entry.sequence = self.last_sequence;
        let texts = [&mut entry.method, &mut entry.host, &mut entry.path];
        for text in texts.into_iter().chain(&mut entry.user_agent) {
            truncate_text(text);
        }
        let is_full = self.entries.len() == MAX_ENTRIES;
        let dropped = if is_full { self.entries.pop_front() } else { None };
        self.entries.push_back(entry);
        dropped
    }

    /// The entries after a sequence number, oldest first.
    pub fn entries_after(&self, sequence: u64) -> impl Iterator<Item = &RequestLogEntry> {
        let start = self.entries.partition_point(|entry| entry.sequence <= sequence);
        self.entries.range(start..)
    }
}

fn truncate_text(text: &mut String) {
    if text.len() > MAX_TEXT_BYTES {
        let end = (0..=MAX_TEXT_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str) -> RequestLogEntry {
        RequestLogEntry {
            sequence: 0,
            time: Timestamp::UNIX_EPOCH,
            service: None,
            operation: None,
            method: "GET".to_owned(),
            host: String::new(),
            path: path.to_owned(),
            api_version: None,
            user_agent: None,
            status: 200,
            tls: false,
            caller: None,
            micros: 0,
            rejection: None,
            missing: false,
            fault: None,
        }
    }

    #[test]
    fn sequence_continues_after_oldest_entries_are_dropped() {
        let mut log = RequestLog::default();
        for _ in 0..MAX_ENTRIES + 2 {
            drop(log.append(entry("/")));
        }
        let first = log.entries_after(0).next().map(|entry| entry.sequence);
        assert_eq!(first, Some(3));
        assert_eq!(log.entries_after(u64::try_from(MAX_ENTRIES).unwrap()).count(), 2);
        assert_eq!(log.entries_after(u64::MAX).count(), 0);
    }

    #[test]
    fn long_path_is_truncated_at_a_character_boundary() {
        let mut log = RequestLog::default();
        drop(log.append(entry(&"é".repeat(MAX_TEXT_BYTES))));
        let length = log.entries_after(0).next().map(|entry| entry.path.len());
        assert_eq!(length, Some(MAX_TEXT_BYTES));
    }
}
