//! The credential file of the component: opened in the component's way, and followed.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_api::canary_report::LoadedCredential;
use lanyard_credential::loader::KeepReason;
use lanyard_credential::{
    CredentialGeneration, LoadObserver, ReloadingCertificateCredential,
    ReloadingCertificateOptions, TokenTransport,
};
use tokio::sync::watch;

use crate::credential_location::CredentialFileLocation;
use crate::proof_error::ProofError;

/// What the file brought last.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadStatus {
    /// How many generations were taken into use.
    pub(crate) published_count: u64,
    /// What was wrong with the content that was not.
    pub(crate) last_error: Option<ProofError>,
}

/// A credential with what its file brings.
#[derive(Debug, Clone)]
pub(crate) struct FollowedCredential {
    pub(crate) credential: Arc<ReloadingCertificateCredential>,
    pub(crate) load_status: watch::Receiver<LoadStatus>,
}

impl FollowedCredential {
    /// Opens the file that the component would open now.
    pub(crate) async fn open(
        place: &CredentialFileLocation,
        transport: &TokenTransport,
    ) -> Result<Self, ProofError> {
        let path = place.resolve_path().map_err(|error| ProofError::of_location(&error))?;
        let (sender, loads) = watch::channel(LoadStatus::default());
        let mut options = ReloadingCertificateOptions::default();
        options.transport = transport.clone();
        options.file.observer = Some(Arc::new(LoadStatusObserver(sender)));
        let credential = ReloadingCertificateCredential::open(&path, options)
            .await
            .map_err(|error| ProofError::of_file(&error, false))?;
        Ok(Self { credential, load_status: loads })
    }

    /// What is wrong with the file, while an older version of it is in use.
    pub(crate) fn file_error(&self) -> Option<ProofError> {
        // The observer knows more, and the health knows when it is over.
        self.credential.health().file.last_error?;
        self.load_status.borrow().last_error.clone()
    }

    /// What is loaded; nothing in it is secret.
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

/// `x5t#S256` of the assertions: base64url of the SHA-256 of the leaf, without padding.
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
            // It is reported by who publishes the file, and what is in use stays.
            let reason = reason.metric_label();
            tracing::warn!(reason, "the credential file holds an older version");
            return;
        };
        let trouble = ProofError::of_file(error, true);
        // A file that cannot be read is reported each time, and is news once.
        self.0.send_if_modified(|loads| {
            let is_news = loads.last_error.as_ref().is_none_or(|it| !it.has_same_cause(&trouble));
            loads.last_error = Some(trouble);
            is_news
        });
    }
}
