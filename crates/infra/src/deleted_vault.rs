//! A deleted Key Vault, which Azure keeps until its purge.

use std::borrow::Cow;
use std::time::Duration;

use lanyard_azure::{
    ArmBody as _, ArmClient, AzureCallError, OperationError, OperationStart, PollPolicy,
    SoftDeletedVault, SoftDeletedVaultProperties, VaultBody,
};
use lanyard_clock::{ErrorHint, SharedClock};
use lanyard_vocabulary::{SubscriptionId, VaultName};

/// How often and how long [`DeletedVault::wait`] waits until Azure lists a vault that was just deleted.
const LIST_ATTEMPTS: u32 = 6;
const LIST_PAUSE: Duration = Duration::from_secs(5);

/// The deleted vault was not purged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VaultPurgeError {
    /// Neither the tags of the vault nor the run shows that lanyard created it.
    #[error("lanyard did not create the deleted vault `{name}`, and does not purge it")]
    NotOwned {
        /// The name of the vault.
        name: String,
    },
    /// The vault has purge protection.
    #[error("the deleted vault `{}` has purge protection, so Azure keeps it and its name until {}", .0.vault.name, .0.purge_date())]
    Protected(Box<DeletedVault>),
    /// Azure does not list the deleted vaults.
    #[error("listing the deleted vaults failed")]
    List(#[source] AzureCallError),
    /// Azure does not list a vault that was just deleted.
    #[error(
        "the vault `{name}` is removed, but Azure does not list it as a deleted vault, so it is not purged"
    )]
    NotListed {
        /// The name of the vault.
        name: VaultName,
    },
    /// Azure does not purge the vault.
    #[error("purging the deleted vault `{name}` failed")]
    Purge {
        /// The name of the vault.
        name: String,
        /// The error of the request.
        source: Box<OperationError>,
    },
}

impl ErrorHint for VaultPurgeError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(match self {
            Self::NotOwned { name } => Cow::Owned(format!(
                "to purge the vault, run `{}`; without --purge, this command removes what the journal records",
                purge_command(name)
            )),
            Self::Protected(vault) => {
                Cow::Owned(format!("restore it with `{}`", vault.recover_command()))
            }
            Self::List(source) => return source.hint(),
            Self::Purge { source, .. } => return source.hint(),
            Self::NotListed { .. } => Cow::Borrowed("run the command again with --purge"),
        })
    }

    fn is_invalid_input(&self) -> bool {
        matches!(self, Self::NotOwned { .. })
    }
}

/// A deleted vault.
#[derive(Debug, Clone)]
pub struct DeletedVault {
    /// The vault, as Azure lists it.
    pub vault: SoftDeletedVault,
}

impl DeletedVault {
    /// Finds the deleted vault of this name in the subscription.
    ///
    /// # Errors
    ///
    /// [`VaultPurgeError::List`].
    pub async fn find(
        arm: &ArmClient,
        subscription: &SubscriptionId,
        name: &VaultName,
    ) -> Result<Option<Self>, VaultPurgeError> {
        let path = SoftDeletedVault::list_path(subscription);
        let listed = arm.list(&path, VaultBody::API_VERSION, &[]).await;
        let mut vaults = listed.map_err(VaultPurgeError::List)?.into_iter().filter_map(|body| {
            let vault = serde_json::from_value::<SoftDeletedVault>(body).ok()?;
            vault.name.eq_ignore_ascii_case(name.as_str()).then_some(Self { vault })
        });
        Ok(vaults.next())
    }

    /// Finds a vault that was just deleted. Azure may list it some seconds after its deletion.
    ///
    /// # Errors
    ///
    /// [`VaultPurgeError::List`], and [`VaultPurgeError::NotListed`] after some attempts.
    pub async fn wait(
        arm: &ArmClient,
        subscription: &SubscriptionId,
        name: &VaultName,
        clock: &SharedClock,
    ) -> Result<Self, VaultPurgeError> {
        for attempt in 1..=LIST_ATTEMPTS {
            if let Some(vault) = Self::find(arm, subscription, name).await? {
                return Ok(vault);
            }
            if attempt < LIST_ATTEMPTS {
                clock.sleep(LIST_PAUSE).await;
            }
        }
        Err(VaultPurgeError::NotListed { name: name.clone() })
    }

    /// Checks that lanyard may purge the vault, and that Azure does not reject it. `is_ours` is whether lanyard
    /// created the vault, or this run removed it.
    ///
    /// # Errors
    ///
    /// [`VaultPurgeError::NotOwned`] and [`VaultPurgeError::Protected`].
    pub fn check_purge(&self, is_ours: bool) -> Result<(), VaultPurgeError> {
        if !is_ours {
            return Err(VaultPurgeError::NotOwned { name: self.vault.name.clone() });
        }
        if self.vault.properties.purge_protection_enabled {
            return Err(VaultPurgeError::Protected(Box::new(self.clone())));
        }
        Ok(())
    }

    /// Deletes the vault permanently.
    ///
    /// # Errors
    ///
    /// [`VaultPurgeError::Purge`].
    pub async fn purge(
        &self,
        arm: &ArmClient,
        clock: &SharedClock,
        policy: PollPolicy,
    ) -> Result<(), VaultPurgeError> {
        let purged = match arm.start(&SoftDeletedVault::purge(&self.vault.id)).await {
            Ok(OperationStart::Pending(operation)) => {
                arm.wait(operation, clock, policy).await.map(drop)
            }
            started => started.map(drop),
        };
        let name = || self.vault.name.clone();
        purged.map_err(|source| VaultPurgeError::Purge { name: name(), source: Box::new(source) })
    }

    /// How long Azure keeps the vault, and what the user can do with it. `has_tags` is whether a later
    /// `destroy keyvault azure` may purge it.
    pub fn retention_text(&self, has_tags: bool) -> String {
        let (name, date) = (&self.vault.name, self.purge_date());
        let purge = if self.vault.properties.purge_protection_enabled {
            "purge protection prevents an earlier purge".to_owned()
        } else if has_tags {
            "to free the name now, run the command again with --purge".to_owned()
        } else {
            format!("to free the name now, run `{}`", purge_command(name))
        };
        format!(
            "note: the name `{name}` stays taken until {date}, when Azure purges the deleted vault\nhint: {purge}; to restore the vault, run `{}`",
            self.recover_command()
        )
    }

    fn purge_date(&self) -> String {
        self.vault.properties.scheduled_purge_date.strftime("%Y-%m-%d").to_string()
    }

    /// The command that restores the vault.
    fn recover_command(&self) -> String {
        let SoftDeletedVaultProperties { vault_id, location, .. } = &self.vault.properties;
        let (name, group) = (&self.vault.name, vault_id.resource_group().unwrap_or_default());
        format!(
            "lanyard create keyvault azure --name {name} --resource-group-name {group} --location {location} --recover"
        )
    }
}

/// The command that purges a deleted vault of another owner.
fn purge_command(name: &str) -> String {
    format!("az keyvault purge --name {name}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vault(purge_protection: bool) -> DeletedVault {
        let subscription = "/subscriptions/s";
        let deleted = "providers/Microsoft.KeyVault/locations/eastus/deletedVaults/harbour-dev";
        let live = "resourceGroups/os4-common/providers/Microsoft.KeyVault/vaults/harbour-dev";
        let vault = json!({
            "id": format!("{subscription}/{deleted}"),
            "name": "harbour-dev",
            "properties": {
                "vaultId": format!("{subscription}/{live}"),
                "location": "eastus",
                "deletionDate": "2026-11-24T00:00:00Z",
                "scheduledPurgeDate": "2027-02-22T13:00:00Z",
                "purgeProtectionEnabled": purge_protection,
            },
        });
        DeletedVault { vault: serde_json::from_value(vault).unwrap() }
    }

    #[test]
    fn note_about_a_deleted_vault_names_the_date_and_the_next_commands() {
        let recover = "lanyard create keyvault azure --name harbour-dev --resource-group-name os4-common --location eastus --recover";
        for (purge_protection, has_tags, hint) in [
            (false, true, "to free the name now, run the command again with --purge"),
            (false, false, "to free the name now, run `az keyvault purge --name harbour-dev`"),
            (true, true, "purge protection prevents an earlier purge"),
        ] {
            assert_eq!(
                vault(purge_protection).retention_text(has_tags),
                format!(
                    "note: the name `harbour-dev` stays taken until 2027-02-22, when Azure purges the deleted vault\nhint: {hint}; to restore the vault, run `{recover}`"
                )
            );
        }
    }

    #[test]
    fn vault_of_another_owner_is_not_purged() {
        vault(false).check_purge(true).unwrap();
        for purge_protection in [false, true] {
            let error = vault(purge_protection).check_purge(false).unwrap_err();
            assert!(error.is_invalid_input());
            let text = format!("{error}\n{}", error.hint().unwrap());
            for part in [
                "lanyard did not create the deleted vault `harbour-dev`",
                "`az keyvault purge --name harbour-dev`",
            ] {
                assert!(text.contains(part), "{text}");
            }
        }
        assert!(!vault(true).check_purge(true).unwrap_err().is_invalid_input());
    }
}
