//! The way to Azure, which every command that asks it something goes.

#[cfg(any(feature = "kms", feature = "canary", feature = "cli"))]
use lanyard_azure::AzureTransport;
use lanyard_azure::{AzureTransportError, AzureTransportSettings};
#[cfg(any(feature = "kms", feature = "canary", feature = "cli"))]
use lanyard_clock::SharedClock;

use crate::exit::CommandError;
use crate::settings::ProcessEnvironment;

/// The proxy of the environment, and the ordinary manners.
///
/// Authorities that the environment names and nobody can read would show much later, as a server
/// that nobody trusts; so they are an error here.
pub(super) fn transport_settings(
    environment: &ProcessEnvironment,
) -> Result<AzureTransportSettings, CommandError> {
    if let Some(path) = &environment.ssl_cert_file
        && let Err(error) = std::fs::File::open(path)
    {
        let told = format!("SSL_CERT_FILE: {} cannot be read", path.display());
        let hint = "name a file with the trusted authorities that this user may read, or unset it";
        return Err(CommandError::unavailable(told).with_cause(&error).with_hint(hint));
    }
    Ok(AzureTransportSettings {
        https_proxy: environment.https_proxy.clone(),
        no_proxy: environment.no_proxy.clone(),
        ..AzureTransportSettings::default()
    })
}

/// The transport of these settings.
#[cfg(any(feature = "kms", feature = "canary", feature = "cli"))]
pub(super) fn build_transport(
    settings: &AzureTransportSettings,
    clock: &SharedClock,
) -> Result<AzureTransport, CommandError> {
    AzureTransport::new(settings, SharedClock::clone(clock))
        .map_err(|error| transport_error(&error))
}

/// What a person is told where there is no way.
pub(super) fn transport_error(error: &AzureTransportError) -> CommandError {
    CommandError::unavailable("Azure cannot be reached").with_cause(error).with_hint(error.hint())
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
        let told = transport_settings(&environment).unwrap_err().to_string();
        assert!(
            told.contains(&format!("SSL_CERT_FILE: {} cannot be read", path.display())),
            "{told}"
        );
        assert!(told.contains("hint: name a file"), "{told}");
    }
}
