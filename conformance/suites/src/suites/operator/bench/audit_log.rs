//! The audit log of the API server.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::Resource as _;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use lanyard_cluster::ControlPlaneOptions;
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::json;

/// Adds an audit log of the users' requests to the options: user, request and time, without bodies.
///
/// The API server writes each line before it responds, so that none is missing.
pub(super) fn with_audit_log(
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
        .with_flag("audit-policy-file", &policy_file.display().to_string())
        .with_flag("audit-log-path", &log.display().to_string())
        .with_flag("audit-log-maxsize", "4096");
    Ok((options, log))
}

/// Reads the lines of the log that are new since the last read.
#[derive(Debug)]
pub(super) struct ApiServerAuditLog {
    path: PathBuf,
    offset: u64,
}

/// The requests in a part of the log.
#[derive(Debug, Clone, Default)]
pub(super) struct AuditSummary {
    /// The number of requests by verb and resource, with its subresource. The verb of a request with an error
    /// response has the status code.
    by_verb: BTreeMap<(String, String), u64>,
    requests: u64,
    failed_requests: u64,
    writes: u64,
    lease_writes: u64,
    first_write: Option<Timestamp>,
    last_write: Option<Timestamp>,
    longest_pause: Duration,
    total_write_time: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditLogLine {
    stage: String,
    verb: String,
    #[serde(default)]
    object_ref: AuditObjectRef,
    #[serde(default)]
    response_status: AuditResponseStatus,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AuditObjectRef {
    resource: String,
    subresource: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AuditResponseStatus {
    code: u16,
}

impl ApiServerAuditLog {
    /// Opens the log at this path from its beginning.
    pub(super) const fn open(path: PathBuf) -> Self {
        Self { path, offset: 0 }
    }

    /// Summarizes the requests since the last read.
    pub(super) fn read_new_lines(&mut self) -> Result<AuditSummary, Failed> {
        let mut summary = AuditSummary::default();
        // The file does not exist before the first line.
        let Ok(mut file) = File::open(&self.path) else { return Ok(summary) };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut reader = BufReader::new(file);
        let mut text = String::new();
        loop {
            text.clear();
            let length = reader.read_line(&mut text)?;
            if !text.ends_with('\n') {
                return Ok(summary);
            }
            self.offset += u64::try_from(length)?;
            summary.add_line(&serde_json::from_str(&text)?);
        }
    }
}

impl AuditSummary {
    fn add_line(&mut self, line: &AuditLogLine) {
        let is_watch = line.verb == "watch";
        // A watch is counted at its start, because many never end.
        if (line.stage == "ResponseStarted") != is_watch || line.stage == "Panic" {
            return;
        }
        let AuditObjectRef { resource, subresource } = &line.object_ref;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let resource = format!("{resource}{slash}{subresource}");
        self.requests += 1;
        let is_refused = line.response_status.code >= 400;
        self.failed_requests += u64::from(is_refused);
        // A rejected write is not counted, so retries lower the measured rate.
        // The API server does not store reviews.
        let is_review = resource == SelfSubjectAccessReview::URL_PATH_SEGMENT;
        let is_write = WRITE_VERBS.contains(&line.verb.as_str()) && !is_review;
        if is_write && !is_refused {
            if resource == "leases" {
                self.lease_writes += 1;
            } else {
                self.writes += 1;
                self.add_write(line.stage_timestamp);
                let took = line.stage_timestamp.duration_since(line.request_received_timestamp);
                self.total_write_time += Duration::try_from(took).unwrap_or_default();
            }
        }
        let mut verb = line.verb.clone();
        if is_refused {
            verb = format!("{verb} ({})", line.response_status.code);
        }
        *self.by_verb.entry((verb, resource)).or_default() += 1;
    }

    /// Records the response time of a write. Lines arrive almost in the order of the responses.
    fn add_write(&mut self, answered: Timestamp) {
        let pause = self.last_write.map(|last| answered.duration_since(last));
        let pause = pause.and_then(|pause| Duration::try_from(pause).ok());
        self.longest_pause = self.longest_pause.max(pause.unwrap_or_default());
        self.first_write = self.first_write.or(Some(answered));
        self.last_write = self.last_write.max(Some(answered));
    }

    /// Adds the requests of a later part of the log.
    pub(super) fn merge(&mut self, later: Self) {
        if let Some(first) = later.first_write {
            self.add_write(first);
        }
        self.longest_pause = self.longest_pause.max(later.longest_pause);
        for (what, count) in later.by_verb {
            *self.by_verb.entry(what).or_default() += count;
        }
        self.requests += later.requests;
        self.failed_requests += later.failed_requests;
        self.writes += later.writes;
        self.lease_writes += later.lease_writes;
        self.last_write = self.last_write.max(later.last_write);
        self.total_write_time += later.total_write_time;
    }

    /// The number of requests.
    pub(super) const fn requests(&self) -> u64 {
        self.requests
    }

    /// The number of requests with an error response.
    pub(super) const fn failed_requests(&self) -> u64 {
        self.failed_requests
    }

    /// The number of successful writes except those of leases: objects, statuses, finalizers, events.
    pub(super) const fn writes(&self) -> u64 {
        self.writes
    }

    /// The number of successful writes of leases.
    pub(super) const fn lease_writes(&self) -> u64 {
        self.lease_writes
    }

    /// The response time of the last write, leases excluded.
    pub(super) const fn last_write(&self) -> Option<Timestamp> {
        self.last_write
    }

    /// The longest time between two writes, leases excluded.
    pub(super) const fn longest_pause(&self) -> Duration {
        self.longest_pause
    }

    /// The sum of the durations of all writes, measured by the server.
    pub(super) const fn total_write_time(&self) -> Duration {
        self.total_write_time
    }

    /// The number of watched kinds.
    pub(super) fn watched_kind_count(&self) -> usize {
        let watched = self.by_verb.keys().filter(|(verb, _)| verb == "watch");
        watched.map(|(_, resource)| resource).collect::<HashSet<_>>().len()
    }

    /// One line for each verb and resource.
    pub(super) fn summary_lines(&self) -> Vec<String> {
        let line = |((verb, resource), count): (&(String, String), &u64)| {
            format!("{count:>8} {verb} {resource}")
        };
        self.by_verb.iter().map(line).collect()
    }
}

const WRITE_VERBS: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
