//! Named drills: situations of Azure that clients have to survive, as data.
//!
//! A drill sets settings, adds fault rules, and performs steps at emulated times. Stopping it restores the
//! settings and removes its rules; what its steps did stays. One drill runs at a time.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::azure_state::AzureState;
use crate::directory::{NextSigningKeyMissing, TenantSigningKey};
use crate::fault_plan::IdentityFault;
use crate::fault_rules::{FaultRule, FaultRuleError};
use crate::keys::RsaKeyError;
use crate::operation_context::IdGenerator;
use crate::seed::{ComponentIdentity, SeedError, rotate_credential};
use crate::settings::{EmulatorSettings, SettingsChange, SettingsError};

/// The drills that the emulator knows by name.
const NAMED_DRILLS: [&str; 8] = [
    include_str!("drills/rbac-five-minutes.json"),
    include_str!("drills/rotate-during-rollout.json"),
    include_str!("drills/kv-throttled-at-boot.json"),
    include_str!("drills/issuer-key-rollover.json"),
    include_str!("drills/entra-brownout.json"),
    include_str!("drills/mi-renewal-missed.json"),
    include_str!("drills/arm-429-on-destroy.json"),
    include_str!("drills/imds-starting.json"),
];

/// A drill.
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
    settings: Option<SettingsChange>,
    /// The fault rules while the drill runs.
    #[serde(default)]
    faults: Vec<FaultRule>,
    /// The steps, in the order of their times.
    #[serde(default)]
    steps: Vec<DrillStep>,
}

/// A step of a drill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DrillStep {
    /// The emulated time since the start of the drill, in seconds.
    #[serde(default)]
    after_seconds: u32,
    action: DrillAction,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DrillAction {
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
    /// Every tenant publishes its old signing keys no longer.
    RemoveSigningKeys,
    /// Every tenant replaces its signing keys at once, without an overlap.
    ReplaceSigningKeys,
    /// The emulated time advances.
    AdvanceClock { seconds: u32 },
}

/// A drill cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrillError {
    /// The emulator knows no drill of this name.
    #[error("`{0}` is not a drill; known: {known}", known = FaultDrill::names().join(", "))]
    UnknownName(String),
    /// The document is not a drill.
    #[error("the drill is invalid: {0}")]
    Json(#[source] serde_json::Error),
    /// The steps are not in the order of their times.
    #[error("the steps of the drill are not in the order of their times")]
    StepOrder,
    /// Two fault rules of the drill have the same name.
    #[error("the drill has two fault rules with the name `{0}`")]
    DuplicateRuleName(String),
    /// A fault rule with the name of one of the drill's rules exists.
    #[error("the fault rule `{0}` exists already; remove it first")]
    RuleNameTaken(String),
    /// Another drill runs.
    #[error("the drill `{0}` runs already; stop it first")]
    AlreadyRunning(String),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    FaultRule(#[from] FaultRuleError),
    /// A credential could not be issued.
    #[error("a credential could not be issued: {0}")]
    Credential(#[from] SeedError),
    /// A signing key could not be generated.
    #[error("a signing key could not be generated")]
    SigningKey(#[from] RsaKeyError),
    /// The certificate of a signing key could not be created.
    #[error("the certificate of a signing key could not be created")]
    SigningCertificate(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A step signs with a key that no earlier step published.
    #[error("a step signs with a key that no earlier step published")]
    SigningKeyNotPublished,
    /// The emulated time would be too far ahead.
    #[error("the emulated time would be too far ahead")]
    ClockTooFarAhead,
}

impl From<NextSigningKeyMissing> for DrillError {
    fn from(_: NextSigningKeyMissing) -> Self {
        Self::SigningKeyNotPublished
    }
}

/// The drill that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunningDrill {
    fault_drill: FaultDrill,
    started: Timestamp,
    /// The number of steps that were performed.
    performed: usize,
    /// The settings before the start.
    previous_settings: EmulatorSettings,
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
    pub fn named(name: &str) -> Result<Self, DrillError> {
        let mut known = Self::named_drills().into_iter();
        known
            .find(|fault_drill| fault_drill.name == name)
            .ok_or_else(|| DrillError::UnknownName(name.to_owned()))
    }

    /// Parses a drill.
    ///
    /// # Errors
    ///
    /// Returns an error that names an unknown field or an invalid value.
    pub fn from_json(json: Value) -> Result<Self, DrillError> {
        let fault_drill: Self = serde_json::from_value(json).map_err(DrillError::Json)?;
        if !fault_drill.steps.is_sorted_by_key(|step| step.after_seconds) {
            return Err(DrillError::StepOrder);
        }
        for (index, rule) in fault_drill.faults.iter().enumerate() {
            rule.check()?;
            if fault_drill.faults[..index].iter().any(|earlier| earlier.name == rule.name) {
                return Err(DrillError::DuplicateRuleName(rule.name.clone()));
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
    pub(crate) const fn fault_drill(&self) -> &FaultDrill {
        &self.fault_drill
    }

    /// Whether the drill has this name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.fault_drill.name == name
    }

    pub(crate) const fn started(&self) -> Timestamp {
        self.started
    }

    /// The steps that were performed, and all steps.
    pub(crate) const fn progress(&self) -> (usize, usize) {
        (self.performed, self.fault_drill.steps.len())
    }

    /// The action of the next step, if its time has come.
    fn due_action(&self, now: Timestamp) -> Option<DrillAction> {
        let step = self.fault_drill.steps.get(self.performed)?;
        let after = SignedDuration::from_secs(i64::from(step.after_seconds));
        (now.duration_since(self.started) >= after).then_some(step.action)
    }
}

/// Starts a drill, and performs its first steps. On an error, nothing changes.
pub(crate) fn start_drill(
    azure: &mut AzureState,
    ids: &mut IdGenerator,
    fault_drill: FaultDrill,
    now: Timestamp,
) -> Result<(), DrillError> {
    if let Some(running) = &*azure.running_drill {
        return Err(DrillError::AlreadyRunning(running.fault_drill.name.clone()));
    }
    let mut names = fault_drill.faults.iter().map(|rule| &rule.name);
    if let Some(taken) = names.find(|name| azure.faults.contains(name)) {
        return Err(DrillError::RuleNameTaken(taken.clone()));
    }
    let previous_settings = EmulatorSettings::of_state(azure);
    let settings = match &fault_drill.settings {
        Some(change) => change.applied_to(&previous_settings)?,
        None => previous_settings.clone(),
    };
    let rules = fault_drill.faults.iter().map(|rule| rule.clone().with_resolved_end(now));
    let rules = rules.collect::<Result<Vec<_>, _>>()?;
    // Only steps can fail from here on.
    let starts_with_step = fault_drill.steps.first().is_some_and(|step| step.after_seconds == 0);
    let before = starts_with_step.then(|| (azure.clone(), ids.clone()));
    settings.store(azure);
    for rule in rules {
        azure.faults.insert(rule);
    }
    *azure.running_drill =
        Some(RunningDrill { fault_drill, started: now, performed: 0, previous_settings });
    let performed = perform_due_steps(azure, ids, now);
    if performed.is_err()
        && let Some(before) = before
    {
        (*azure, *ids) = before;
    }
    performed
}

/// Stops the running drill: restores all settings to their values before its start, and removes its rules.
/// Returns its name.
pub(crate) fn stop_drill(azure: &mut AzureState) -> Option<String> {
    let RunningDrill { fault_drill, previous_settings, .. } = azure.running_drill.take()?;
    previous_settings.store(azure);
    for rule in &fault_drill.faults {
        azure.faults.remove(&rule.name);
    }
    Some(fault_drill.name)
}

/// Whether a step of the running drill is due.
pub(crate) fn has_due_step(azure: &AzureState, now: Timestamp) -> bool {
    azure.running_drill.as_ref().is_some_and(|running| running.due_action(now).is_some())
}

/// Performs the steps whose time has come. Slow: steps create keys. A step that fails is not repeated.
pub(crate) fn perform_due_steps(
    azure: &mut AzureState,
    ids: &mut IdGenerator,
    now: Timestamp,
) -> Result<(), DrillError> {
    while let Some(action) =
        azure.running_drill.as_ref().and_then(|running| running.due_action(now))
    {
        if let Some(running) = &mut *azure.running_drill {
            running.performed += 1;
        }
        perform_action(azure, ids, action, now)?;
    }
    Ok(())
}

fn perform_action(
    azure: &mut AzureState,
    ids: &mut IdGenerator,
    action: DrillAction,
    now: Timestamp,
) -> Result<(), DrillError> {
    match action {
        DrillAction::RotateCredentials => rotate_every_credential(azure, ids, now, |_| {}),
        DrillAction::ExpireCredentials => rotate_every_credential(azure, ids, now, |identity| {
            identity.faults.insert(IdentityFault::Expired);
        }),
        DrillAction::RenewCredentials => rotate_every_credential(azure, ids, now, |identity| {
            identity.faults.remove(&IdentityFault::Expired);
        }),
        DrillAction::AdvanceClock { seconds } => {
            let by = SignedDuration::from_secs(i64::from(seconds));
            let advanced = azure.clock.advance_by(by).ok_or(DrillError::ClockTooFarAhead)?;
            *azure.clock = advanced;
            Ok(())
        }
        DrillAction::PublishSigningKeys
        | DrillAction::SignWithPublishedKeys
        | DrillAction::RemoveSigningKeys
        | DrillAction::ReplaceSigningKeys => roll_signing_keys(azure, ids, action, now),
    }
}

/// Issues a credential for each identity. Identities that share a secret get one credential.
fn rotate_every_credential(
    azure: &mut AzureState,
    ids: &mut IdGenerator,
    now: Timestamp,
    prepare: impl Fn(&mut ComponentIdentity),
) -> Result<(), DrillError> {
    azure.registry.holders.iter_mut().for_each(prepare);
    let identities = azure.registry.holders.clone();
    for (index, identity) in identities.iter().enumerate() {
        if identities[..index].iter().any(|earlier| earlier.shares_secret(identity)) {
            continue;
        }
        rotate_credential(azure, identity.component, ids, now, 0)?;
    }
    Ok(())
}

fn roll_signing_keys(
    azure: &mut AzureState,
    ids: &mut IdGenerator,
    action: DrillAction,
    now: Timestamp,
) -> Result<(), DrillError> {
    let mut new_key = || {
        let key = ids.generate_rsa_key()?;
        TenantSigningKey::new(key, now)
            .map_err(|error| DrillError::SigningCertificate(Box::new(error)))
    };
    for tenant in azure.directory.tenants.iter_mut() {
        let keys = &mut tenant.signing_keys;
        match action {
            DrillAction::PublishSigningKeys => keys.publish_next(new_key()?),
            DrillAction::SignWithPublishedKeys => keys.sign_with_next()?,
            DrillAction::RemoveSigningKeys => keys.remove_previous(),
            _ => keys.replace_all(new_key()?),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
