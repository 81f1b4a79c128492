//! Selects the provider of a volume.

use std::sync::Arc;

use async_trait::async_trait;
use lanyard_api::SecretProviderClass;
use lanyard_provider::{Provider, ProviderError, ProviderRequest, ProviderResponse};
use lanyard_vocabulary::OutcomeCode;

use crate::provider::attributes::PodOverrides;
use crate::provider::socket::SocketProviders;

/// Selects the provider that `spec.provider` of the class names: `azure` in this process, every other
/// provider by its socket.
pub struct ProviderRegistry {
    azure: Option<Arc<dyn Provider>>,
    socket_providers: Arc<SocketProviders>,
    overrides: PodOverrides,
}

impl ProviderRegistry {
    /// Creates a registry. Without a built-in `azure` provider, it looks for the socket `azure.sock`, so that
    /// the upstream provider can stay while the driver changes.
    pub const fn new(
        azure: Option<Arc<dyn Provider>>,
        socket_providers: Arc<SocketProviders>,
        overrides: PodOverrides,
    ) -> Self {
        Self { azure, socket_providers, overrides }
    }
}

lanyard_vocabulary::debug_fields!(ProviderRegistry { azure, overrides });

#[async_trait]
impl Provider for ProviderRegistry {
    async fn fetch(
        &self,
        request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        let class = self.overrides.apply_to(request.class, request.attributes);
        let missing = missing_fields(&class);
        if !missing.is_empty() {
            let metadata = &class.metadata;
            return Err(ProviderError::new(
                OutcomeCode::SecretProviderClassInvalid,
                format!(
                    "SecretProviderClass {}/{} does not set {}",
                    metadata.namespace.as_deref().unwrap_or_default(),
                    metadata.name.as_deref().unwrap_or_default(),
                    missing.join(" and "),
                ),
            ));
        }
        let request = ProviderRequest { class: &class, ..*request };
        match &self.azure {
            Some(azure)
                if class.spec.provider.as_deref() == Some(SecretProviderClass::AZURE_PROVIDER) =>
            {
                azure.fetch(&request).await
            }
            _ => self.socket_providers.fetch(&request).await,
        }
    }
}

fn missing_fields(class: &SecretProviderClass) -> Vec<&'static str> {
    let spec = &class.spec;
    let mut missing = Vec::new();
    if spec.provider.as_deref().unwrap_or_default().is_empty() {
        missing.push("`spec.provider`");
    }
    if spec.parameters.as_ref().is_none_or(std::collections::BTreeMap::is_empty) {
        missing.push("`spec.parameters`");
    }
    missing
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lanyard_clock::ManualClock;
    use lanyard_keyvault::{PodCredentials, VolumePod};
    use parking_lot::Mutex;

    use super::*;
    use crate::provider::SocketProviderSettings;
    use lanyard_provider::Urgency;

    /// Records the vaults that were requested.
    #[derive(Debug, Default)]
    struct FakeAzureProvider(Mutex<Vec<String>>);

    #[async_trait]
    impl Provider for FakeAzureProvider {
        async fn fetch(
            &self,
            request: &ProviderRequest<'_>,
        ) -> Result<ProviderResponse, ProviderError> {
            let parameters = request.class.spec.parameters.clone().unwrap_or_default();
            self.0.lock().push(parameters["keyvaultName"].clone());
            Err(ProviderError::new(OutcomeCode::VaultUnavailable, "a test"))
        }
    }

    async fn fetch_outcome(
        provider: &str,
        azure: Option<Arc<dyn Provider>>,
        overrides: PodOverrides,
    ) -> OutcomeCode {
        let directories = vec![std::path::PathBuf::from("/nonexistent")];
        let settings = SocketProviderSettings { directories, ..SocketProviderSettings::default() };
        let clock = ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap());
        let sockets = Arc::new(SocketProviders::new(settings, Arc::new(clock)));
        let registry = ProviderRegistry::new(azure, sockets, overrides);
        let map = |text: &str| BTreeMap::from([("keyvaultName".to_owned(), text.to_owned())]);
        let mut class = SecretProviderClass::default();
        class.spec.provider = Some(provider.to_owned());
        class.spec.parameters = Some(map("of-the-class"));
        let [namespace, name, uid, service_account] = ["n", "p", "u", "s"].map(str::to_owned);
        let request = ProviderRequest {
            class: &class,
            pod: &VolumePod { namespace, name, uid, service_account },
            attributes: &map("of-the-pod"),
            pod_credentials: &PodCredentials::default(),
            target: "/target",
            urgency: Urgency::Mount,
            mounted: &[],
            memory: &lanyard_keyvault::UnlimitedMemory,
        };
        registry.fetch(&request).await.unwrap_err().code
    }

    #[tokio::test]
    async fn azure_class_is_served_in_process_only_if_configured() {
        let vaults = Arc::new(FakeAzureProvider::default());
        let azure =
            || -> Option<Arc<dyn Provider>> { Some(Arc::<FakeAzureProvider>::clone(&vaults)) };
        let refused = PodOverrides::Refused;
        assert_eq!(fetch_outcome("azure", azure(), refused).await, OutcomeCode::VaultUnavailable);
        assert_eq!(fetch_outcome("Azure", azure(), refused).await, OutcomeCode::ProviderNotFound);
        assert_eq!(fetch_outcome("azure", None, refused).await, OutcomeCode::ProviderNotFound);
        assert_eq!(
            fetch_outcome("", azure(), refused).await,
            OutcomeCode::SecretProviderClassInvalid
        );
        let allowed = fetch_outcome("azure", azure(), PodOverrides::Allowed).await;
        assert_eq!(allowed, OutcomeCode::VaultUnavailable);
        assert_eq!(*vaults.0.lock(), ["of-the-class", "of-the-pod"]);
    }
}
