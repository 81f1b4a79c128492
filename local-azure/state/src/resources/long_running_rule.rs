//! Settings that delay the operations of a resource provider or of a type.

use serde::{Deserialize, Serialize};

/// The delays of operations. The first rule that matches a type applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LongRunningSettings {
    rules: Vec<LongRunningRule>,
}

/// The delay of the operations of a resource type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LongRunningRule {
    /// A type, a namespace, or `*`.
    resource_type: String,
    /// The number of polls before an operation completes.
    #[serde(default)]
    pub polls: u32,
    /// The seconds of emulated time before an operation completes. The first poll after them
    /// completes it.
    #[serde(default)]
    pub seconds: u32,
    #[serde(default)]
    pub style: PollingStyle,
    /// `retry-after-ms` of the replies; null for none. Without it, the clients of Go and Python wait for 30
    /// seconds.
    #[serde(default = "default_retry_after")]
    pub retry_after_milliseconds: Option<u64>,
    #[serde(default)]
    pub outcome: OperationOutcome,
    /// The number of reads of a written resource that return 404 after its operation succeeded.
    #[serde(default)]
    pub missing_reads: u32,
    /// The number of polls after which the URLs of the operation return 404, as after the end of their
    /// retention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after_polls: Option<u32>,
}

/// An option, because the setting may be null.
#[expect(clippy::unnecessary_wraps, reason = "serde needs the type of the field")]
const fn default_retry_after() -> Option<u64> {
    Some(50)
}

/// How the client learns of the completion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PollingStyle {
    /// The header `Azure-AsyncOperation`, a URL with the status of the operation.
    #[default]
    AsyncOperation,
    /// The header `Location`, a URL that returns 202 until the operation completes.
    Location,
    /// `properties.provisioningState` of the resource; for deletions like `Location`.
    Body,
}

/// The result of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", tag = "status")]
pub enum OperationOutcome {
    #[default]
    Succeeded,
    Failed {
        code: String,
        message: String,
    },
    Canceled,
}

impl OperationOutcome {
    pub const fn status(&self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed { .. } => "Failed",
            Self::Canceled => "Canceled",
        }
    }
}

impl LongRunningRule {
    /// The rule of held operations that no setting delays. Its `retry-after-ms` is within the published limit of
    /// AKS for reads of an operation's status.
    pub fn of_held_operations() -> Self {
        Self {
            resource_type: String::new(),
            polls: 0,
            seconds: 0,
            style: PollingStyle::default(),
            retry_after_milliseconds: Some(500),
            outcome: OperationOutcome::default(),
            missing_reads: 0,
            expires_after_polls: None,
        }
    }

    /// Whether the rule changes nothing: an operation completes before its reply.
    pub fn is_immediate(&self) -> bool {
        self.polls == 0
            && self.seconds == 0
            && self.missing_reads == 0
            && self.outcome == OperationOutcome::Succeeded
    }
}

impl LongRunningSettings {
    pub fn rule_for(&self, kind: &str) -> Option<&LongRunningRule> {
        self.rules.iter().find(|rule| {
            let pattern = rule.resource_type.as_str();
            let namespace = kind.split_once('/').map_or(kind, |(namespace, _)| namespace);
            pattern == "*"
                || pattern.eq_ignore_ascii_case(kind)
                || pattern.eq_ignore_ascii_case(namespace)
        })
    }
}
