//! Drills: situations of Azure that clients have to survive, as data.
//!
//! A drill sets settings, adds fault rules, and performs steps at emulated times.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault_rules::{FaultRule, FaultRuleError};
use crate::json_error::{JsonError, from_json_value};
use crate::settings::{EmulatorSettings, SettingsChange};

/// The drills that the emulator knows by name.
const NAMED_DRILLS: [&str; 8] = [
    include_str!("drill/rbac-five-minutes.json"),
    include_str!("drill/rotate-during-rollout.json"),
    include_str!("drill/kv-throttled-at-boot.json"),
    include_str!("drill/issuer-key-rollover.json"),
    include_str!("drill/entra-brownout.json"),
    include_str!("drill/mi-renewal-missed.json"),
    include_str!("drill/arm-429-on-destroy.json"),
    include_str!("drill/imds-starting.json"),
];

/// A drill: the settings, the fault rules and the timed steps of one situation of Azure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultDrill {
    name: String,
    /// What happens, in one sentence.
    #[serde(default)]
    summary: String,
    /// What a client is expected to do, in one sentence.
    #[serde(default)]
    expectation: String,
    /// The settings while the drill runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsChange>,
    /// The fault rules while the drill runs.
    #[serde(default)]
    pub faults: Vec<FaultRule>,
    /// The steps, in the order of their times.
    #[serde(default)]
    pub steps: Vec<DrillStep>,
}

/// A step of a drill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DrillStep {
    /// The emulated time since the start of the drill, in seconds.
    #[serde(default)]
    pub after_seconds: u32,
    action: DrillAction,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrillAction {
    /// Writes a new certificate of each component's identity to its vault secret.
    RotateCredentials,
    /// Like `rotate-credentials`, with certificates that have expired.
    ExpireCredentials,
    /// Like `rotate-credentials`, with valid certificates after expired ones.
    RenewCredentials,
    /// Every tenant publishes a signing key that does not sign yet.
    PublishSigningKeys,
    /// Every tenant signs with the published key; the old one stays published.
    SignWithPublishedKeys,
    /// Every tenant stops publishing its old signing keys.
    RemoveSigningKeys,
    /// Every tenant replaces its signing keys at once, without an overlap.
    ReplaceSigningKeys,
    /// The emulated time advances.
    AdvanceClock { seconds: u32 },
}

/// The state of the running drill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningDrill {
    pub fault_drill: FaultDrill,
    pub started: Timestamp,
    /// The number of steps that were performed.
    pub performed: usize,
    /// The settings before the start.
    pub previous_settings: EmulatorSettings,
}

/// A drill is unknown, or its definition is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrillDefinitionError {
    /// The emulator knows no drill of this name.
    #[error("`{0}` is not a drill; known: {known}", known = FaultDrill::names().join(", "))]
    UnknownName(String),
    /// The document is not a drill.
    #[error("the drill is invalid: {0}")]
    Json(#[source] JsonError),
    /// The steps are not in the order of their times.
    #[error("the steps of the drill are not in the order of their times")]
    StepOrder,
    /// Two fault rules of the drill have the same name.
    #[error("`faults[{index}].name` is the name of an earlier rule of the drill")]
    DuplicateRuleName {
        /// The position of the later rule.
        index: usize,
    },
    /// A fault rule of the drill is invalid.
    #[error(transparent)]
    FaultRule(#[from] FaultRuleError),
}

impl FaultDrill {
    /// The names of the known drills.
    pub fn names() -> Vec<String> {
        Self::named_drills().into_iter().map(|fault_drill| fault_drill.name).collect()
    }

    /// Every known drill.
    pub fn named_drills() -> Vec<Self> {
        let drills = NAMED_DRILLS.into_iter().map(serde_json::from_str);
        drills.filter_map(Result::ok).collect()
    }

    /// The known drill of a name.
    ///
    /// # Errors
    ///
    /// Returns an error that lists the known names.
    pub fn named(name: &str) -> Result<Self, DrillDefinitionError> {
        let mut known = Self::named_drills().into_iter();
        known
            .find(|fault_drill| fault_drill.name == name)
            .ok_or_else(|| DrillDefinitionError::UnknownName(name.to_owned()))
    }

    /// Parses a drill.
    ///
    /// # Errors
    ///
    /// Returns an error that names an unknown field or an invalid value.
    pub fn from_json(json: Value) -> Result<Self, DrillDefinitionError> {
        let fault_drill: Self = from_json_value(json).map_err(DrillDefinitionError::Json)?;
        if !fault_drill.steps.is_sorted_by_key(|step| step.after_seconds) {
            return Err(DrillDefinitionError::StepOrder);
        }
        for (index, rule) in fault_drill.faults.iter().enumerate() {
            rule.check()?;
            if fault_drill.faults[..index].iter().any(|earlier| earlier.name == rule.name) {
                return Err(DrillDefinitionError::DuplicateRuleName { index });
            }
        }
        Ok(fault_drill)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// What happens, in one sentence.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// What a client is expected to do, in one sentence.
    pub fn expectation(&self) -> &str {
        &self.expectation
    }
}

impl RunningDrill {
    /// Whether the drill has this name.
    pub fn is_named(&self, name: &str) -> bool {
        self.fault_drill.name == name
    }

    /// The number of steps that were performed, and the number of all steps.
    pub const fn progress(&self) -> (usize, usize) {
        (self.performed, self.fault_drill.steps.len())
    }

    /// The action of the next step, if its time has come.
    pub fn due_action(&self, now: Timestamp) -> Option<DrillAction> {
        let step = self.fault_drill.steps.get(self.performed)?;
        let after = SignedDuration::from_secs(i64::from(step.after_seconds));
        (now.duration_since(self.started) >= after).then_some(step.action)
    }
}
