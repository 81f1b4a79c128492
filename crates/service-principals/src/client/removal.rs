//! Deletes what lanyard created of a service principal.

use std::collections::HashMap;

use uuid::Uuid;

use super::{
    Observer, PREFIX_TAG, ServicePrincipalClient, ServicePrincipalEvent, ServicePrincipalStep,
    StepResult, graph_error, is_unknown_object,
};
use crate::names::ServicePrincipalNames;

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
        let mut created = CreatedObjects {
            application: application.map(|it| it.id),
            ..CreatedObjects::default()
        };
        let mut deleted_certificate = None;
        let mut deleted_secret = None;
        if deletion == Deletion::Permanent {
            created.deleted_applications = self.find_deleted_applications(names).await?;
            deleted_certificate = self.vault.deleted_certificate_tags(name).await?;
            deleted_secret = self.vault.deleted_secret_tags(secret).await?;
        }
        let state = |live: Option<HashMap<_, _>>, deleted: Option<HashMap<_, _>>| match (
            live.is_some_and(|it| is_ours(&it)),
            deleted.is_some_and(|it| is_ours(&it)),
        ) {
            (true, _) => VaultObjectState::Live,
            (false, true) => VaultObjectState::Deleted,
            (false, false) => VaultObjectState::Absent,
        };
        created.certificate = state(live_certificate, deleted_certificate);
        created.secret = state(live_secret, deleted_secret);
        Ok(created)
    }

    async fn find_deleted_applications(
        &self,
        names: &ServicePrincipalNames,
    ) -> StepResult<Vec<Uuid>> {
        let failed = |source| graph_error("looking for deleted applications", names, source);
        let found = self.graph.deleted_applications().await.map_err(failed)?;
        let name = Some(names.name.as_str());
        let created = found.into_iter().filter(|it| it.unique_name.as_deref() == name);
        Ok(created.map(|it| it.id).collect())
    }

    /// Deletes what [`find_created`](Self::find_created) found.
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
        observer: Observer<'_>,
    ) -> StepResult<()> {
        let report = |step| observer(ServicePrincipalEvent { name: &names.name, step });
        let is_permanent = deletion == Deletion::Permanent;
        if let Some(application) = objects.application {
            let deleted = self.graph.delete_application(application).await;
            deleted.map_err(|source| graph_error("deleting the application", names, source))?;
            if is_permanent {
                self.purge_application(names, application).await?;
            }
            report(ServicePrincipalStep::ApplicationDeleted);
        }
        for application in &objects.deleted_applications {
            self.purge_application(names, *application).await?;
            report(ServicePrincipalStep::ApplicationPurged);
        }
        if objects.secret == VaultObjectState::Live {
            self.vault.delete_secret(&names.secret).await?;
        }
        if objects.secret != VaultObjectState::Absent && is_permanent {
            self.vault.purge_secret(&names.secret).await?;
        }
        match objects.secret {
            VaultObjectState::Absent => {}
            VaultObjectState::Live => report(ServicePrincipalStep::DocumentDeleted),
            VaultObjectState::Deleted => report(ServicePrincipalStep::DocumentPurged),
        }
        if objects.certificate == VaultObjectState::Live {
            self.vault.delete_certificate(&names.name).await?;
        }
        if objects.certificate != VaultObjectState::Absent && is_permanent {
            self.vault.purge_certificate(&names.name).await?;
        }
        match objects.certificate {
            VaultObjectState::Absent => {}
            VaultObjectState::Live => report(ServicePrincipalStep::CertificateDeleted),
            VaultObjectState::Deleted => report(ServicePrincipalStep::CertificatePurged),
        }
        Ok(())
    }

    /// Purges a deleted application. While Graph does not know the deleted application, the request is repeated.
    async fn purge_application(
        &self,
        names: &ServicePrincipalNames,
        application: Uuid,
    ) -> StepResult<()> {
        let purge = || self.graph.purge_deleted_object(application);
        let purged = self.propagation.repeat(purge, is_unknown_object).await;
        purged.map_err(|source| graph_error("purging the deleted application", names, source))
    }
}
