//! The component's credential file: found as the component finds it, and reloaded when it changes.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_api::canary_report::LoadedCredential;
use lanyard_credential::{
    CredentialGeneration, KeepReason, LoadObserver, ReloadingCertificateCredential,
    ReloadingCertificateOptions, TokenTransport,
};
use tokio::sync::watch;

use crate::credential_location::CredentialFileLocation;
use crate::proof_error::ProofError;

/// The result of loading the credential file.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadStatus {
    /// The number of generations that were loaded and published.
    pub(crate) published_count: u64,
    /// The error of the last load, if its content was rejected.
    pub(crate) last_error: Option<ProofError>,
}

/// A credential that reloads its file after each change, with the status of its last load.
#[derive(Debug, Clone)]
pub(crate) struct WatchedCredential {
    pub(crate) credential: Arc<ReloadingCertificateCredential>,
    pub(crate) load_status: watch::Receiver<LoadStatus>,
}

impl WatchedCredential {
    /// Opens the file that the component would open now.
    pub(crate) async fn open(
        location: &CredentialFileLocation,
        transport: &TokenTransport,
    ) -> Result<Self, ProofError> {
        let path = location.resolve_path().map_err(|error| ProofError::of_location(&error))?;
        let (sender, loads) = watch::channel(LoadStatus::default());
        let mut options = ReloadingCertificateOptions::default();
        options.transport = transport.clone();
        options.file.observer = Some(Arc::new(LoadStatusObserver(sender)));
        let credential = ReloadingCertificateCredential::open(&path, options)
            .await
            .map_err(|error| ProofError::of_file(&error, false))?;
        Ok(Self { credential, load_status: loads })
    }

    /// The error of the credential file, while an older version of it is in use.
    pub(crate) fn file_error(&self) -> Option<ProofError> {
        // The health shows whether the error still exists; the observer has its details.
        self.credential.health().file.last_error?;
        self.load_status.borrow().last_error.clone()
    }

    /// The public data of the loaded credential. Contains no secrets.
    pub(crate) fn loaded_credential(&self) -> LoadedCredential {
        let generation = self.credential.generation();
        let stamps = generation.timestamps();
        LoadedCredential {
            client_id: generation.client_id().to_string(),
            thumbprint: thumbprint(&generation),
            not_before: Some(generation.not_before()),
            not_after: Some(generation.expires_at()),
            renew_after: stamps.renew_after,
            cannot_renew_after: stamps.cannot_renew_after,
        }
    }
}

/// `x5t#S256` of the client assertions: the SHA-256 of the leaf certificate in base64url without
/// padding.
pub(crate) fn thumbprint(generation: &CredentialGeneration) -> String {
    URL_SAFE_NO_PAD.encode(generation.bundle().leaf().sha256().as_bytes())
}

#[derive(Debug)]
struct LoadStatusObserver(watch::Sender<LoadStatus>);

impl LoadObserver for LoadStatusObserver {
    fn generation_published(&self, _: &CredentialGeneration) {
        self.0.send_modify(|loads| {
            loads.published_count += 1;
            loads.last_error = None;
        });
    }

    fn generation_kept(&self, reason: &KeepReason) {
        let KeepReason::Failed(error) = reason else {
            // The identity service that publishes the file reports this; the loaded version stays
            // in use.
            let reason = reason.metric_label();
            tracing::warn!(reason, "the credential file holds an older version");
            return;
        };
        let error = ProofError::of_file(error, true);
        // Each read of an unreadable file reports the error; receivers are notified of the first.
        self.0.send_if_modified(|loads| {
            let is_new = loads.last_error.as_ref().is_none_or(|it| !it.has_same_cause(&error));
            loads.last_error = Some(error);
            is_new
        });
    }
}
