//! Deletes what lanyard created of a service principal.

use std::collections::HashMap;

use uuid::Uuid;

use super::{
    ChangeObserver, PREFIX_TAG, ServicePrincipalClient, StepResult, graph_error, is_unknown_object,
};
use crate::error::ServicePrincipalError;
use crate::names::ServicePrincipalNames;

const PURGING: &str = "purging the deleted application";

/// What exists of an object of the vault that lanyard created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VaultObjectState {
    /// Nothing.
    #[default]
    Absent,
    /// The object.
    Live,
    /// The deleted object, which the vault keeps until its retention ends.
    Deleted,
}

/// What exists of what lanyard created of a service principal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreatedObjects {
    /// The object id of the application.
    pub application: Option<Uuid>,
    /// The object ids of deleted applications, which Entra ID keeps for 30 days.
    pub deleted_applications: Vec<Uuid>,
    /// The certificate.
    pub certificate: VaultObjectState,
    /// The secret.
    pub secret: VaultObjectState,
}

/// What happens to the objects that are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// Entra ID keeps the application for 30 days, and the vault its objects for its retention. A later creation
    /// restores the objects of the vault.
    Recoverable,
    /// They are deleted permanently.
    Permanent,
}

impl ServicePrincipalClient {
    /// What lanyard created of a service principal: the application with the unique name, and the certificate and
    /// the secret with lanyard's tag. For a permanent deletion, also what an earlier call deleted and did not purge.
    /// Sends GET requests only.
    ///
    /// # Errors
    ///
    /// [`ServicePrincipalError`](crate::ServicePrincipalError) of the first request that fails.
    pub async fn find_created(
        &self,
        names: &ServicePrincipalNames,
        deletion: Deletion,
    ) -> StepResult<CreatedObjects> {
        let application = self.graph.application_by_unique_name(names.name.as_str()).await;
        let application =
            application.map_err(|source| graph_error("reading the application", names, source))?;
        let is_ours = |tags: &HashMap<String, String>| {
            tags.get(PREFIX_TAG).is_some_and(|prefix| *prefix == self.prefix.to_string())
        };
        let (name, secret) = (&names.name, &names.secret);
        let live_certificate = self.vault.certificate(name).await?.map(|it| it.tags);
        let live_secret = self.vault.secret(secret).await?.map(|it| it.tags);
        let (mut deleted_applications, mut deleted_certificate, mut deleted_secret) =
            (Vec::new(), None, None);
        if deletion == Deletion::Permanent {
            deleted_applications = self.find_deleted_applications(names).await?;
            deleted_certificate = self.vault.deleted_certificate_tags(name).await?;
            deleted_secret = self.vault.deleted_secret_tags(secret).await?;
        }
        let state = |live: Option<HashMap<_, _>>, deleted: Option<HashMap<_, _>>| {
            if live.is_some_and(|it| is_ours(&it)) {
                VaultObjectState::Live
            } else if deleted.is_some_and(|it| is_ours(&it)) {
                VaultObjectState::Deleted
            } else {
                VaultObjectState::Absent
            }
        };
        Ok(CreatedObjects {
            application: application.map(|it| it.id),
            deleted_applications,
            certificate: state(live_certificate, deleted_certificate),
            secret: state(live_secret, deleted_secret),
        })
    }

    async fn find_deleted_applications(
        &self,
        names: &ServicePrincipalNames,
    ) -> StepResult<Vec<Uuid>> {
        let found = self.graph.deleted_applications().await.map_err(|source| {
            ServicePrincipalError::DeletedApplications { source: Box::new(source) }
        })?;
        let name = Some(names.name.as_str());
        let created = found.into_iter().filter(|it| it.unique_name.as_deref() == name);
        Ok(created.map(|it| it.id).collect())
    }

    /// Deletes what [`find_created`](Self::find_created) found. Purges begin after all deletions, because purge
    /// protection may prevent them.
    ///
    /// # Errors
    ///
    /// [`ServicePrincipalError`](crate::ServicePrincipalError) of the first deletion that fails; the next call
    /// continues.
    pub async fn delete(
        &self,
        names: &ServicePrincipalNames,
        objects: &CreatedObjects,
        deletion: Deletion,
        observer: ChangeObserver<'_>,
    ) -> StepResult<()> {
        if let Some(application) = objects.application {
            let deleted = self.graph.delete_application(application).await;
            deleted.map_err(|source| graph_error("deleting the application", names, source))?;
            observer("deleted the application");
        }
        let (secret, certificate) = (objects.secret, objects.certificate);
        if secret == VaultObjectState::Live {
            self.vault.delete_secret(&names.secret).await?;
            observer("deleted the credential in the vault");
        }
        if certificate == VaultObjectState::Live {
            self.vault.delete_certificate(&names.name).await?;
            observer("deleted the certificate in the vault");
        }
        if deletion == Deletion::Recoverable {
            return Ok(());
        }
        for application in objects.application.iter().chain(&objects.deleted_applications) {
            // Graph does not know an application that was just deleted everywhere yet.
            let purge = || self.graph.purge_deleted_object(*application);
            match self.propagation.repeat(purge, is_unknown_object).await {
                // Another client has purged it.
                Err(source) if is_unknown_object(&source) => continue,
                purged => purged.map_err(|source| graph_error(PURGING, names, source))?,
            }
            observer("purged a deleted application");
        }
        if secret != VaultObjectState::Absent {
            self.vault.purge_secret(&names.secret, secret == VaultObjectState::Live).await?;
        }
        if secret == VaultObjectState::Deleted {
            observer("purged the deleted credential in the vault");
        }
        if certificate != VaultObjectState::Absent {
            let wait = certificate == VaultObjectState::Live;
            self.vault.purge_certificate(&names.name, wait).await?;
        }
        if certificate == VaultObjectState::Deleted {
            observer("purged the deleted certificate in the vault");
        }
        Ok(())
    }
}
