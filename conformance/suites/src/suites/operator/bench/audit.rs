//! What the API server says that somebody asked: its audit log.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use lanyard_cluster::ControlPlaneOptions;
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::json;

/// Has the API server write down what users ask: who, what and when, no content.
///
/// It writes each line before it goes on, so that none is missing.
pub(super) fn audited(
    options: ControlPlaneOptions,
    directory: &Path,
    users: &[&str],
) -> Result<(ControlPlaneOptions, PathBuf), Failed> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": users}, {"level": "None"}],
    });
    let (policy_file, log) = (directory.join("audit.json"), directory.join("audit.log"));
    fs::write(&policy_file, policy.to_string())?;
    let options = options
        .flag("audit-policy-file", &policy_file.display().to_string())
        .flag("audit-log-path", &log.display().to_string())
        .flag("audit-log-maxsize", "4096");
    Ok((options, log))
}

/// Reads the log on from where it was read last.
#[derive(Debug)]
pub(super) struct AuditLog {
    path: PathBuf,
    offset: u64,
}

/// What was asked within a time.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    /// How often each verb was asked of each kind, subresources named.
    by_verb: BTreeMap<(String, String), u64>,
    requests: u64,
    refused: u64,
    writes: u64,
    lease_writes: u64,
    first_write: Option<Timestamp>,
    last_write: Option<Timestamp>,
    longest_pause: Duration,
    writing: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl AuditLog {
    /// The log at this path, from its beginning.
    pub(super) const fn at(path: PathBuf) -> Self {
        Self { path, offset: 0 }
    }

    /// What was asked since the last reading.
    pub(super) fn read(&mut self) -> Result<Tally, Failed> {
        let mut tally = Tally::default();
        // Before the first line there is no file.
        let Ok(mut file) = File::open(&self.path) else { return Ok(tally) };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut reader = BufReader::new(file);
        let mut text = String::new();
        loop {
            text.clear();
            let length = reader.read_line(&mut text)?;
            if !text.ends_with('\n') {
                return Ok(tally);
            }
            self.offset += u64::try_from(length)?;
            tally.count(&serde_json::from_str(&text)?);
        }
    }
}

impl Tally {
    fn count(&mut self, line: &Line) {
        let is_watch = line.verb == "watch";
        // A watch counts when it begins: many do not end.
        if (line.stage == "ResponseStarted") != is_watch || line.stage == "Panic" {
            return;
        }
        let ObjectRef { resource, subresource } = &line.object_ref;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let resource = format!("{resource}{slash}{subresource}");
        self.requests += 1;
        let is_refused = line.response_status.code >= 400;
        self.refused += u64::from(is_refused);
        // A write that is refused wrote nothing: whoever has to try again is slower for it.
        if !is_refused && WRITES.contains(&line.verb.as_str()) {
            if resource == "leases" {
                self.lease_writes += 1;
            } else {
                self.writes += 1;
                self.take_write(line.stage_timestamp);
                let took = line.stage_timestamp.duration_since(line.request_received_timestamp);
                self.writing += Duration::try_from(took).unwrap_or_default();
            }
        }
        *self.by_verb.entry((line.verb.clone(), resource)).or_default() += 1;
    }

    /// A write that was answered then. They come nearly in the order of their answers.
    fn take_write(&mut self, answered: Timestamp) {
        let pause = self.last_write.map(|last| answered.duration_since(last));
        let pause = pause.and_then(|pause| Duration::try_from(pause).ok());
        self.longest_pause = self.longest_pause.max(pause.unwrap_or_default());
        self.first_write = self.first_write.or(Some(answered));
        self.last_write = self.last_write.max(Some(answered));
    }

    /// Adds what was asked later.
    pub(super) fn add(&mut self, later: Self) {
        if let Some(first) = later.first_write {
            self.take_write(first);
        }
        self.longest_pause = self.longest_pause.max(later.longest_pause);
        for (what, count) in later.by_verb {
            *self.by_verb.entry(what).or_default() += count;
        }
        self.requests += later.requests;
        self.refused += later.refused;
        self.writes += later.writes;
        self.lease_writes += later.lease_writes;
        self.last_write = self.last_write.max(later.last_write);
        self.writing += later.writing;
    }

    /// Everything that was asked.
    pub(super) const fn requests(&self) -> u64 {
        self.requests
    }

    /// What was answered with an error.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    /// Every write that was taken, but those of leases: objects, statuses, finalizers, events.
    pub(super) const fn writes(&self) -> u64 {
        self.writes
    }

    /// The writes of leases that were taken.
    pub(super) const fn lease_writes(&self) -> u64 {
        self.lease_writes
    }

    /// When the last write that is none of a lease was answered.
    pub(super) const fn last_write(&self) -> Option<Timestamp> {
        self.last_write
    }

    /// The longest time between two writes of which neither is one of a lease.
    pub(super) const fn longest_pause(&self) -> Duration {
        self.longest_pause
    }

    /// How long the writes took together, from the server's view.
    pub(super) const fn writing(&self) -> Duration {
        self.writing
    }

    /// How many kinds are watched.
    pub(super) fn watched(&self) -> usize {
        let watched = self.by_verb.keys().filter(|(verb, _)| verb == "watch");
        watched.map(|(_, resource)| resource).collect::<HashSet<_>>().len()
    }

    /// One line for each kind and verb.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |((verb, resource), count): (&(String, String), &u64)| {
            format!("{count:>8} {verb} {resource}")
        };
        self.by_verb.iter().map(line).collect()
    }
}

const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
