//! The Azure transport of the commands.

#[cfg(any(feature = "kms", feature = "canary", feature = "cli"))]
use lanyard_azure::AzureTransport;
use lanyard_azure::AzureTransportSettings;
#[cfg(any(feature = "kms", feature = "canary", feature = "cli"))]
use lanyard_clock::SharedClock;

use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};
use crate::settings::ProcessEnvironment;

/// The transport settings: the proxy of the environment, and the default request policy.
///
/// Returns an error if `SSL_CERT_FILE` cannot be read; otherwise the problem would surface later, as an
/// untrusted server certificate.
pub(super) fn transport_settings(
    environment: &ProcessEnvironment,
) -> Result<AzureTransportSettings, CommandError> {
    if let Some(path) = &environment.ssl_cert_file {
        std::fs::File::open(path)
            .or_unavailable(format_args!("SSL_CERT_FILE: {} cannot be read", path.display()))
            .hint(
                "name a file with the trusted authorities that this user may read, or unset it",
            )?;
    }
    Ok(AzureTransportSettings {
        https_proxy: environment.https_proxy.clone(),
        no_proxy: environment.no_proxy.clone(),
        ..AzureTransportSettings::default()
    })
}

#[cfg(any(feature = "kms", feature = "canary", feature = "cli"))]
pub(super) fn build_transport(
    settings: &AzureTransportSettings,
    clock: &SharedClock,
) -> Result<AzureTransport, CommandError> {
    AzureTransport::new(settings, SharedClock::clone(clock)).context("Azure cannot be reached")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_ssl_cert_file_is_reported_at_start() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let environment = ProcessEnvironment {
            ssl_cert_file: Some(path.clone()),
            ..ProcessEnvironment::default()
        };
        assert!(transport_settings(&environment).is_ok());
        drop(file);
        let message = transport_settings(&environment).unwrap_err().to_string();
        assert!(
            message.contains(&format!("SSL_CERT_FILE: {} cannot be read", path.display())),
            "{message}"
        );
        assert!(message.contains("hint: name a file"), "{message}");
    }
}
