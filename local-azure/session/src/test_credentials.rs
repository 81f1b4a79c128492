//! The test credentials of a running local Azure, in a file that only the user can read.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use lanyard_emulator::Emulator;
use serde::{Deserialize, Serialize};

use crate::file_replacement::replace_file;
use crate::session_error::SessionError;

const FILE_NAME: &str = "credentials.json";

/// The credentials of the seeded administrator and application, both Owner of the subscription.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalTestCredentials {
    tenant: String,
    subscription: String,
    client_id: String,
    client_secret: String,
    user_principal_name: String,
    user_password: String,
    /// Whether `lanyard azure env` prints the credentials.
    exported: bool,
}

impl fmt::Debug for LocalTestCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("LocalTestCredentials")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

/// The identity with which the Azure CLI signs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LoginPrincipal {
    /// The administrator
    User,
    /// The application with a client secret
    ServicePrincipal,
}

impl LocalTestCredentials {
    /// Returns the credentials of a local Azure, or `None` if its state has no test clients.
    /// `exported` says whether `lanyard azure env` prints them.
    pub fn of_emulator(emulator: &Emulator, exported: bool) -> Option<Self> {
        let seeded = emulator.test_credentials()?;
        Some(Self {
            tenant: seeded.tenant.to_string(),
            subscription: seeded.subscription.to_string(),
            client_id: seeded.client_id.to_string(),
            client_secret: seeded.client_secret().to_owned(),
            user_password: seeded.user_password().to_owned(),
            user_principal_name: seeded.user_principal_name,
            exported,
        })
    }

    /// Reads the credentials in a response to `GET test-clients`. `exported` says whether `lanyard azure env` prints
    /// them.
    ///
    /// # Errors
    ///
    /// Returns an error if a field is missing.
    pub fn of_control_api(
        response: &serde_json::Value,
        exported: bool,
    ) -> Result<Self, SessionError> {
        let text = |pointer: &'static str| {
            let text = response.pointer(pointer).and_then(serde_json::Value::as_str);
            text.map(str::to_owned).ok_or(SessionError::MissingTestClient { pointer })
        };
        Ok(Self {
            tenant: text("/tenant")?,
            subscription: text("/subscription")?,
            client_id: text("/secret/clientId")?,
            client_secret: text("/secret/clientSecret")?,
            user_principal_name: text("/user/userPrincipalName")?,
            user_password: text("/user/password")?,
            exported,
        })
    }

    /// Writes the credentials to a session directory. `None` removes those of an earlier session.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written or removed.
    pub fn write(credentials: Option<&Self>, directory: &Path) -> Result<(), SessionError> {
        let path = directory.join(FILE_NAME);
        let written = match credentials {
            // Temporary files are readable only by their owner.
            Some(credentials) => serde_json::to_vec_pretty(credentials)
                .map_err(io::Error::other)
                .and_then(|text| replace_file(&path, &text)),
            None => match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        written.map_err(|source| SessionError::WriteCredentials { file: path, source })
    }

    /// Reads the credentials in a session directory; `None` if it has none that are valid.
    pub fn load(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join(FILE_NAME)).ok()?).ok()
    }

    /// The client id of the application.
    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Whether `lanyard azure env` prints the credentials.
    pub const fn is_exported(&self) -> bool {
        self.exported
    }

    /// The environment variables that the Azure SDKs read, with the application's credentials.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("AZURE_TENANT_ID", self.tenant.clone()),
            ("AZURE_CLIENT_ID", self.client_id.clone()),
            ("AZURE_CLIENT_SECRET", self.client_secret.clone()),
            ("AZURE_SUBSCRIPTION_ID", self.subscription.clone()),
        ]
    }

    /// Returns the arguments of `az`, beginning with `login`, that sign a principal in.
    pub fn az_login_arguments(&self, principal: LoginPrincipal) -> Vec<&str> {
        let credential = match principal {
            LoginPrincipal::User => {
                vec!["--username", &self.user_principal_name, "--password", &self.user_password]
            }
            LoginPrincipal::ServicePrincipal => vec![
                "--service-principal",
                "--username",
                &self.client_id,
                "--password",
                &self.client_secret,
                "--tenant",
                &self.tenant,
            ],
        };
        let fixed = ["login", "--only-show-errors", "--output", "none"];
        fixed.into_iter().chain(credential).collect()
    }

    /// Returns the name of a principal for messages: a user principal name or a client id.
    pub fn principal_name(&self, principal: LoginPrincipal) -> &str {
        match principal {
            LoginPrincipal::User => &self.user_principal_name,
            LoginPrincipal::ServicePrincipal => &self.client_id,
        }
    }
}

#[cfg(test)]
impl LocalTestCredentials {
    /// Credentials for tests.
    pub(crate) fn example() -> Self {
        Self {
            tenant: "t".to_owned(),
            subscription: "s".to_owned(),
            client_id: "c".to_owned(),
            client_secret: "secret".to_owned(),
            user_principal_name: "u".to_owned(),
            user_password: "password".to_owned(),
            exported: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn credentials_are_readable_by_their_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        LocalTestCredentials::write(Some(&LocalTestCredentials::example()), directory.path())
            .unwrap();
        assert!(
            LocalTestCredentials::load(directory.path()) == Some(LocalTestCredentials::example())
        );
        let mode = fs::metadata(directory.path().join(FILE_NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
        LocalTestCredentials::write(None, directory.path()).unwrap();
        LocalTestCredentials::write(None, directory.path()).unwrap();
        assert!(LocalTestCredentials::load(directory.path()).is_none());
    }

    #[test]
    fn debug_output_has_no_secret_and_no_password() {
        let text = format!("{:?}", LocalTestCredentials::example());
        assert!(!text.contains("secret") && !text.contains("password"), "{text}");
    }

    #[test]
    fn service_principal_signs_in_to_its_tenant() {
        let credentials = LocalTestCredentials::example();
        let arguments = credentials.az_login_arguments(LoginPrincipal::ServicePrincipal).join(" ");
        assert!(arguments.ends_with("--username c --password secret --tenant t"), "{arguments}");
        let arguments = credentials.az_login_arguments(LoginPrincipal::User).join(" ");
        assert!(arguments.ends_with("none --username u --password password"), "{arguments}");
    }
}
