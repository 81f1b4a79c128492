//! Named drills: situations of Azure that clients have to survive, as data.
//!
//! A drill changes settings, adds fault rules, and performs steps at emulated times. Stopping it
//! restores the settings and removes its fault rules, but does not undo its steps. One drill runs
//! at a time.

use jiff::{SignedDuration, Timestamp};
use lanyard_emulator_core::emulated_service::{ScheduledWork, ServiceSet};
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::directory::{NextSigningKeyMissing, TenantSigningKey};
use lanyard_emulator_state::drill::{DrillAction, DrillDefinitionError, FaultDrill, RunningDrill};
use lanyard_emulator_state::fault_rules::FaultRuleError;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::identity_fault::IdentityFault;
use lanyard_emulator_state::identity_registry::ComponentIdentity;
use lanyard_emulator_state::keys::RsaKeyError;
use lanyard_emulator_state::settings::{EmulatorSettings, SettingsError};

use crate::seed::SeedError;
use crate::seed::credential::rotate_credential;

/// A drill, or one of its settings, fault rules or steps, could not be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrillError {
    /// The drill is invalid or unknown.
    #[error(transparent)]
    Definition(#[from] DrillDefinitionError),
    /// A fault rule with the name of one of the drill's fault rules exists.
    #[error("`faults[{index}].name` is the name of an existing fault rule; remove that rule first")]
    RuleNameTaken {
        /// The position of the rule in the drill.
        index: usize,
    },
    /// Another drill is running.
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

/// The steps of the running drill, as scheduled work of the engine.
pub(crate) const SCHEDULED_WORK: ScheduledWork = ScheduledWork {
    is_due: has_due_step,
    perform: |_, azure, ids, now| Ok(perform_due_steps(azure, ids, now)?),
};

/// Starts a drill, and performs the steps that are due at the start. On an error, nothing changes.
pub(crate) fn start_drill(
    services: &ServiceSet,
    azure: &mut AzureState,
    ids: &mut IdGenerator,
    fault_drill: FaultDrill,
    now: Timestamp,
) -> Result<(), DrillError> {
    if let Some(running) = &*azure.running_drill {
        return Err(DrillError::AlreadyRunning(running.fault_drill.name().to_owned()));
    }
    let mut names = fault_drill.faults.iter().map(|rule| &rule.name);
    if let Some(index) = names.position(|name| azure.faults.contains(name)) {
        return Err(DrillError::RuleNameTaken { index });
    }
    let previous_settings = EmulatorSettings::of_state(azure);
    let settings = match &fault_drill.settings {
        Some(change) => services.check_settings(change.applied_to(&previous_settings)?)?,
        None => previous_settings.clone(),
    };
    let rules = fault_drill.faults.iter().map(|rule| rule.clone().with_resolved_end(now));
    let rules = rules.collect::<Result<Vec<_>, _>>()?;
    // After this point, only steps can fail.
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

/// Stops the running drill: restores all settings to their values before its start, and removes its
/// fault rules. Returns the name of the drill; `None` if no drill is running.
pub(crate) fn stop_drill(azure: &mut AzureState) -> Option<String> {
    let RunningDrill { fault_drill, previous_settings, .. } = azure.running_drill.take()?;
    previous_settings.store(azure);
    for rule in &fault_drill.faults {
        azure.faults.remove(&rule.name);
    }
    Some(fault_drill.name().to_owned())
}

/// Whether a step of the running drill is due.
pub(crate) fn has_due_step(azure: &AzureState, now: Timestamp) -> bool {
    azure.running_drill.as_ref().is_some_and(|running| running.due_action(now).is_some())
}

/// Performs the due steps. Slow, because steps create keys. A failed step is not repeated.
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

/// Issues a credential for each component. Components with the same secret get one credential.
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
