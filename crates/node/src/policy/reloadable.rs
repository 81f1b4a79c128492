//! The policy in use, reloaded when its file changes.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use lanyard_clock::{ErrorHint as _, SharedClock};
use parking_lot::RwLock;

use crate::audit::{AuditEvent, AuditTrail};
use crate::policy::NodePolicy;
use crate::policy::error::{PolicyError, PolicyProblem, PolicyProblems};

/// The maximum size of a policy file: some ten thousand rules.
const MAX_POLICY_BYTES: u64 = 1 << 20;
/// How often the file is checked. A projected `ConfigMap` follows its source within a minute or two, so this
/// adds little delay.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// How often the node repeats the warning that the file is not the policy in use.
const WARNING_INTERVAL: Duration = Duration::from_hours(1);

/// Holds the policy in use and reloads it from its file. If the file becomes invalid, the last good policy
/// stays in use and the error is reported.
#[derive(Debug)]
pub struct ReloadablePolicy {
    path: Option<PathBuf>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    policy: Arc<NodePolicy>,
    /// The SHA-256 of the last file that was checked.
    last_digest: Option<String>,
    /// The reason why the file is not the policy in use.
    load_error: Option<String>,
}

/// The result of a reload.
#[derive(Debug)]
#[non_exhaustive]
pub enum PolicyReload {
    /// The file is unchanged.
    Unchanged,
    /// The file changed; its policy is now in use.
    Replaced {
        /// The SHA-256 of the file, hexadecimal.
        digest: String,
        /// The number of rules.
        rules: usize,
    },
    /// The file is invalid; the last good policy stays in use.
    Rejected(PolicyError),
}

impl ReloadablePolicy {
    /// Creates a policy without a file and without rules, which allows no access.
    pub fn without_file() -> Self {
        let state = State { policy: Arc::default(), last_digest: None, load_error: None };
        Self { path: None, state: RwLock::new(state) }
    }

    /// Loads the policy from a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is invalid: the node must not start with another policy
    /// than the intended one.
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

    /// Returns the policy in use.
    pub fn current(&self) -> Arc<NodePolicy> {
        Arc::clone(&self.state.read().policy)
    }

    /// Returns the reason why the file is not the policy in use, while it is not.
    pub fn load_error(&self) -> Option<String> {
        self.state.read().load_error.clone()
    }

    /// Returns the load error and its consequence for the node, as text for users.
    pub fn warning(&self) -> Option<String> {
        let problem = self.load_error()?;
        Some(format!(
            "{problem}; the previous policy is still in use, and the next start on \
             this node will fail"
        ))
    }

    /// Checks the file again. An unchanged invalid file is reported once.
    pub fn reload(&self) -> PolicyReload {
        let Some(path) = &self.path else { return PolicyReload::Unchanged };
        let read = read_policy_file(path);
        let digest_text = match &read {
            Ok(text) => sha256_hex(text),
            Err(error) => error.to_string(),
        };
        let mut state = self.state.write();
        if state.last_digest.as_ref() == Some(&digest_text) {
            return PolicyReload::Unchanged;
        }
        state.last_digest = Some(digest_text.clone());
        match read.and_then(|text| parse_policy(path, &text)) {
            Ok(policy) => {
                let rules = policy.len();
                state.policy = Arc::new(policy);
                state.load_error = None;
                PolicyReload::Replaced { digest: digest_text, rules }
            }
            Err(error) => {
                state.load_error = Some(error.to_string());
                PolicyReload::Rejected(error)
            }
        }
    }

    /// Checks the file periodically until the future is dropped, and logs and audits changes.
    pub async fn watch_file(self: Arc<Self>, clock: SharedClock, audit: AuditTrail) {
        if self.path.is_none() {
            return;
        }
        let mut warned_at = None;
        loop {
            clock.sleep(POLL_INTERVAL).await;
            let policy = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || policy.reload()).await {
                Ok(outcome) => Self::log_reload(outcome, &audit),
                Err(error) => tracing::error!(%error, "could not check the policy file"),
            }
            self.repeat_warning(clock.monotonic(), &mut warned_at);
        }
    }

    /// An invalid file has no effect until this process restarts, so the warning must appear before that.
    fn repeat_warning(&self, now: Duration, warned_at: &mut Option<Duration>) {
        let Some(warning) = self.warning() else {
            *warned_at = None;
            return;
        };
        // `log_reload` has reported the first failure.
        let since = *warned_at.get_or_insert(now);
        if now.saturating_sub(since) >= WARNING_INTERVAL {
            *warned_at = Some(now);
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
                    hint = error.hint().as_deref(),
                    cause,
                    "{error}; the previous policy stays in use",
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
