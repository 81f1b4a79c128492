//! The credential file of the component: opened in the component's way, and followed.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_api::canary_facts::LoadedCredential;
use lanyard_credential::loader::KeepReason;
use lanyard_credential::{
    Generation, LoadObserver, ReloadingCertificateCredential, ReloadingCertificateOptions,
    TokenTransport,
};
use tokio::sync::watch;

use crate::place::CredentialPlace;
use crate::trouble::Trouble;

/// What the file brought last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loads {
    /// How many generations were taken into use.
    pub(crate) published: u64,
    /// What was wrong with the content that was not.
    pub(crate) trouble: Option<Trouble>,
}

/// A credential with what its file brings.
#[derive(Debug, Clone)]
pub(crate) struct Followed {
    pub(crate) credential: Arc<ReloadingCertificateCredential>,
    pub(crate) loads: watch::Receiver<Loads>,
}

impl Followed {
    /// Opens the file that the component would open now.
    pub(crate) async fn open(
        place: &CredentialPlace,
        transport: &TokenTransport,
    ) -> Result<Self, Trouble> {
        let path = place.load_path().map_err(|error| Trouble::of_place(&error))?;
        let (sender, loads) = watch::channel(Loads::default());
        let mut options = ReloadingCertificateOptions::default();
        options.transport = transport.clone();
        options.file.observer = Some(Arc::new(Observer(sender)));
        let credential = ReloadingCertificateCredential::open(&path, options)
            .await
            .map_err(|error| Trouble::of_file(&error, false))?;
        Ok(Self { credential, loads })
    }

    /// What is wrong with the file, while an older version of it is in use.
    pub(crate) fn file_trouble(&self) -> Option<Trouble> {
        // The observer knows more, and the health knows when it is over.
        self.credential.health().file.last_error?;
        self.loads.borrow().trouble.clone()
    }

    /// What is loaded; nothing in it is secret.
    pub(crate) fn loaded(&self) -> LoadedCredential {
        let generation = self.credential.generation();
        let stamps = generation.stamps();
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
pub(crate) fn thumbprint(generation: &Generation) -> String {
    URL_SAFE_NO_PAD.encode(generation.bundle().leaf().sha256().as_bytes())
}

#[derive(Debug)]
struct Observer(watch::Sender<Loads>);

impl LoadObserver for Observer {
    fn published(&self, _: &Generation) {
        self.0.send_modify(|loads| {
            loads.published += 1;
            loads.trouble = None;
        });
    }

    fn kept(&self, reason: &KeepReason) {
        let KeepReason::Failed(error) = reason else {
            // It is reported by who publishes the file, and what is in use stays.
            let reason = reason.word();
            tracing::warn!(reason, "the credential file holds an older version");
            return;
        };
        let trouble = Trouble::of_file(error, true);
        // A file that cannot be read is reported each time, and is news once.
        self.0.send_if_modified(|loads| {
            let is_news = loads.trouble.as_ref().is_none_or(|it| !it.is_same(&trouble));
            loads.trouble = Some(trouble);
            is_news
        });
    }
}
