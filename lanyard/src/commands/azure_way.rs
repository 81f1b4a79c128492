//! The way to Azure, which every command that asks it something goes.

#[cfg(any(feature = "kms", feature = "canary", feature = "cli"))]
use lanyard_azure::Transport;
use lanyard_azure::{TransportError, TransportSettings};
#[cfg(any(feature = "kms", feature = "canary", feature = "cli"))]
use lanyard_clock::SharedClock;

use crate::exit::CommandError;
use crate::settings::Environment;

/// The proxy of the environment, and the ordinary manners.
///
/// Authorities that the environment names and nobody can read would show much later, as a server
/// that nobody trusts; so they are an error here.
pub(super) fn settings(environment: &Environment) -> Result<TransportSettings, CommandError> {
    if let Some(path) = &environment.ssl_cert_file
        && let Err(error) = std::fs::File::open(path)
    {
        let told = format!("SSL_CERT_FILE: {} cannot be read", path.display());
        let hint = "name a file with the trusted authorities that this user may read, or unset it";
        return Err(CommandError::unavailable(told).because(&error).hint(hint));
    }
    Ok(TransportSettings {
        https_proxy: environment.https_proxy.clone(),
        no_proxy: environment.no_proxy.clone(),
        ..TransportSettings::default()
    })
}

/// The transport of these settings.
#[cfg(any(feature = "kms", feature = "canary", feature = "cli"))]
pub(super) fn transport(
    settings: &TransportSettings,
    clock: &SharedClock,
) -> Result<Transport, CommandError> {
    Transport::new(settings, SharedClock::clone(clock)).map_err(|error| explain(&error))
}

/// What a person is told where there is no way.
pub(super) fn explain(error: &TransportError) -> CommandError {
    CommandError::unavailable("Azure cannot be reached").because(error).hint(error.hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_that_cannot_be_read_are_named_at_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        let environment =
            Environment { ssl_cert_file: Some(path.clone()), ..Environment::default() };
        assert!(settings(&environment).is_ok());
        drop(file);
        let told = settings(&environment).unwrap_err().to_string();
        assert!(
            told.contains(&format!("SSL_CERT_FILE: {} cannot be read", path.display())),
            "{told}"
        );
        assert!(told.contains("hint: name a file"), "{told}");
    }
}
