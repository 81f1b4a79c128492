//! The policy in use, followed through changes of its file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use lanyard_clock::SharedClock;
use parking_lot::RwLock;

use crate::audit::{AuditEvent, AuditTrail};
use crate::policy::NodePolicy;
use crate::policy::error::{PolicyError, PolicyProblem, PolicyProblems};

/// The largest policy that is read: some ten thousand rules.
const MAX_POLICY_BYTES: u64 = 1 << 20;
/// How often the file is looked at. A projected `ConfigMap` follows its source within a minute or
/// two, so this adds little.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// How often it is told that the file is not the policy in use.
const WARNING_INTERVAL: Duration = Duration::from_hours(1);

/// Keeps the policy in use. A file that becomes unreadable changes nothing: the last good policy
/// stays, and that is said.
#[derive(Debug)]
pub struct ReloadablePolicy {
    path: Option<PathBuf>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    policy: Arc<NodePolicy>,
    /// The SHA-256 of the file that was looked at last.
    last_digest: Option<String>,
    /// Why the file is not the policy in use.
    load_error: Option<String>,
}

/// What a look at the file came to.
#[derive(Debug)]
#[non_exhaustive]
pub enum PolicyReload {
    /// It is what it was.
    Unchanged,
    /// It is another good policy, which is now in use.
    Replaced {
        /// The SHA-256 of the file, hexadecimal.
        digest: String,
        /// How many rules it has.
        rules: usize,
    },
    /// It cannot be used; the last good policy stays.
    Rejected(PolicyError),
}

impl ReloadablePolicy {
    /// No file: no rule, so nothing is allowed by a rule.
    pub fn without_file() -> Self {
        let state = State { policy: Arc::default(), last_digest: None, load_error: None };
        Self { path: None, state: RwLock::new(state) }
    }

    /// The policy of a file.
    ///
    /// # Errors
    /// If the file cannot be read or is no policy: nobody should start with another policy than
    /// the one that was meant.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        let text = read_policy_file(path)?;
        let policy = parse_policy(path, &text)?;
        let state = State {
            policy: Arc::new(policy),
            last_digest: Some(sha256_hex(&text)),
            load_error: None,
        };
        Ok(Self { path: Some(path.to_owned()), state: RwLock::new(state) })
    }

    /// The policy in use.
    pub fn current(&self) -> Arc<NodePolicy> {
        Arc::clone(&self.state.read().policy)
    }

    /// Why the file that is there is not the policy in use, while that is so.
    pub fn load_error(&self) -> Option<String> {
        self.state.read().load_error.clone()
    }

    /// What that means for the node, for people.
    pub fn warning(&self) -> Option<String> {
        let problem = self.load_error()?;
        Some(format!(
            "{problem}; the policy that was in use before is still in use, and the next start on \
             this node will fail"
        ))
    }

    /// Looks at the file again. The same bad file is reported once.
    pub fn reload(&self) -> PolicyReload {
        let Some(path) = &self.path else { return PolicyReload::Unchanged };
        let read = read_policy_file(path);
        let seen = match &read {
            Ok(text) => sha256_hex(text),
            Err(error) => error.to_string(),
        };
        let mut state = self.state.write();
        if state.last_digest.as_ref() == Some(&seen) {
            return PolicyReload::Unchanged;
        }
        state.last_digest = Some(seen.clone());
        match read.and_then(|text| parse_policy(path, &text)) {
            Ok(policy) => {
                let rules = policy.len();
                state.policy = Arc::new(policy);
                state.load_error = None;
                PolicyReload::Replaced { digest: seen, rules }
            }
            Err(error) => {
                state.load_error = Some(error.to_string());
                PolicyReload::Rejected(error)
            }
        }
    }

    /// Looks at the file again and again until this is dropped, and says what changed.
    pub async fn watch_file(self: Arc<Self>, clock: SharedClock, audit: AuditTrail) {
        if self.path.is_none() {
            return;
        }
        let mut told_at = None;
        loop {
            clock.sleep(POLL_INTERVAL).await;
            let keeper = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || keeper.reload()).await {
                Ok(outcome) => Self::log_reload(outcome, &audit),
                Err(error) => tracing::error!(%error, "the policy file was not looked at"),
            }
            self.repeat_warning(clock.monotonic(), &mut told_at);
        }
    }

    /// A bad file is harmless until this process ends; that has to be known before it does.
    fn repeat_warning(&self, now: Duration, told_at: &mut Option<Duration>) {
        let Some(warning) = self.warning() else {
            *told_at = None;
            return;
        };
        // The first time is told with what changed.
        let since = *told_at.get_or_insert(now);
        if now.saturating_sub(since) >= WARNING_INTERVAL {
            *told_at = Some(now);
            tracing::error!("{warning}");
        }
    }

    fn log_reload(outcome: PolicyReload, audit: &AuditTrail) {
        match outcome {
            PolicyReload::Unchanged => {}
            PolicyReload::Replaced { digest, rules } => {
                tracing::warn!(digest, rules, "the policy changed");
                audit.record(AuditEvent::PolicyTaken { digest, rules });
            }
            PolicyReload::Rejected(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(
                    hint = error.hint(),
                    cause,
                    "{error}; the policy that was in use before stays in use",
                );
                audit.record(AuditEvent::PolicyKept { problem: error.to_string() });
            }
        }
    }
}

fn read_policy_file(path: &Path) -> Result<Vec<u8>, PolicyError> {
    let fail = |source| PolicyError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path)
        .map_err(fail)?
        .take(MAX_POLICY_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_POLICY_BYTES {
        return Err(PolicyError::TooLarge { path: path.to_owned(), limit: MAX_POLICY_BYTES });
    }
    Ok(bytes)
}

fn parse_policy(path: &Path, bytes: &[u8]) -> Result<NodePolicy, PolicyError> {
    let parsed = match std::str::from_utf8(bytes) {
        Ok(text) => NodePolicy::parse(text),
        Err(error) => {
            let reason = format!("this is not UTF-8: {error}");
            Err(PolicyProblems(vec![PolicyProblem { field: String::new(), reason }]))
        }
    };
    parsed.map_err(|problems| PolicyError::Invalid { path: path.to_owned(), problems })
}

fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA256, bytes))
}
