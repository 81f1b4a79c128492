//! The certificates that an application accepts.
//!
//! A write replaces all certificates of an application, so each write is made from a read immediately before it.

use std::time::Duration;

use lanyard_azure::{GraphApplication, GraphKeyCredential};
use uuid::Uuid;

use super::{ChangeObserver, ServicePrincipalClient, StepResult, graph_error, is_unknown_object};
use crate::error::ServicePrincipalError;
use crate::live_state::LiveServicePrincipal;
use crate::names::ServicePrincipalNames;
use crate::public_certificate::PublicCertificate;

impl ServicePrincipalClient {
    /// Makes an application (object id) accept these certificates. Returns whether one of them was missing.
    pub(super) async fn register(
        &self,
        names: &ServicePrincipalNames,
        application: Uuid,
        wanted: &[&PublicCertificate],
    ) -> StepResult<bool> {
        let add = |found: &GraphApplication| {
            let mut changed = found.clone();
            for certificate in wanted {
                if !certificate.is_accepted_by(&changed) {
                    let added = certificate.to_key_credential(&names.name, Uuid::new_v4());
                    changed.key_credentials.push(added);
                }
            }
            changed.key_credentials
        };
        let is_changed =
            self.change_certificates(names, application, "adding the certificate", add).await?;
        if is_changed {
            self.prove_registration(names, application, wanted).await?;
        }
        Ok(is_changed)
    }

    /// Adds the certificate in the secret to the application again.
    pub(super) async fn register_used_certificate(
        &self,
        names: &ServicePrincipalNames,
        live: &LiveServicePrincipal,
        observer: ChangeObserver<'_>,
    ) -> StepResult<()> {
        let (Some(application), Some(secret)) = (&live.application, &live.secret) else {
            return Ok(());
        };
        let used = secret.usable_certificate(application, self.clock.now());
        let wanted: Vec<_> = used.into_iter().collect();
        if self.register(names, application.id, &wanted).await? {
            observer("added the certificate to the application");
        }
        Ok(())
    }

    /// Waits until Microsoft Graph returns the application with these certificates.
    pub(super) async fn prove_registration(
        &self,
        names: &ServicePrincipalNames,
        application: Uuid,
        wanted: &[&PublicCertificate],
    ) -> StepResult<()> {
        let read = || async {
            let found = self.graph.application(application).await;
            match found.map_err(|source| graph_error("reading the application", names, source))? {
                Some(found) if wanted.iter().all(|it| it.is_accepted_by(&found)) => Ok(()),
                _ => Err(ServicePrincipalError::NotRegistered { name: names.name.to_string() }),
            }
        };
        self.propagation.repeat(read, is_temporary).await
    }

    /// Removes earlier certificates from the application.
    pub(super) async fn retire(
        &self,
        names: &ServicePrincipalNames,
        live: &LiveServicePrincipal,
        overlap: Duration,
        observer: ChangeObserver<'_>,
    ) -> StepResult<()> {
        let Some(application) = &live.application else { return Ok(()) };
        if application.key_credentials.len() < 2 {
            return Ok(());
        }
        let versions = self.vault.certificate_thumbprints(&names.name).await?;
        let now = self.clock.now();
        let retired = |live: &LiveServicePrincipal, application: &GraphApplication| {
            live.retired_certificates(application, &versions, overlap, now)
        };
        if retired(live, application).is_empty() {
            return Ok(());
        }
        // The versions may be newer than the live state.
        let live = self.read(names).await?;
        let keep = |found: &GraphApplication| -> Vec<GraphKeyCredential> {
            let (all, retired) = (found.key_credentials.iter(), retired(&live, found));
            all.filter(|it| !retired.contains(it)).cloned().collect()
        };
        let operation = "removing earlier certificates";
        if self.change_certificates(names, application.id, operation, keep).await? {
            let used = live.certificate.iter().map(|it| &it.public).collect::<Vec<_>>();
            self.prove_registration(names, application.id, &used).await?;
            observer("removed earlier certificates from the application");
        }
        Ok(())
    }

    /// Reads an application (object id), and replaces its certificates by what `change` returns, unless they are the
    /// same. Returns whether there was a write.
    async fn change_certificates(
        &self,
        names: &ServicePrincipalNames,
        application: Uuid,
        operation: &'static str,
        change: impl Fn(&GraphApplication) -> Vec<GraphKeyCredential>,
    ) -> StepResult<bool> {
        let failed = |source| graph_error(operation, names, source);
        let attempt = || async {
            let found = self.graph.application(application).await.map_err(failed)?;
            let Some(found) = found else {
                let name = names.name.to_string();
                return Err(ServicePrincipalError::NotRegistered { name });
            };
            let changed = change(&found);
            if changed == found.key_credentials {
                return Ok(false);
            }
            let replaced = self.graph.replace_key_credentials(application, &changed).await;
            replaced.map(|()| true).map_err(failed)
        };
        self.propagation.repeat(attempt, is_temporary).await
    }
}

/// Whether Microsoft Graph answers so until it knows a new application or certificate everywhere.
fn is_temporary(error: &ServicePrincipalError) -> bool {
    match error {
        ServicePrincipalError::NotRegistered { .. } => true,
        ServicePrincipalError::Graph { source, .. } => is_unknown_object(source),
        _ => false,
    }
}
