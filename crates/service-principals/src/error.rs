//! Why a service principal cannot be created, rotated or deleted.

use std::borrow::Cow;

use lanyard_azure::AzureCallError;
use lanyard_azure::error_codes::{KEY_VAULT, sdk_error_hint};
use lanyard_clock::ErrorHint;
use lanyard_credential::document::DocumentError;
use lanyard_credential::{ClientCertificateError, TokenError};
use lanyard_vocabulary::SecretName;

/// A service principal cannot be created, rotated or deleted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServicePrincipalError {
    /// Microsoft Graph rejected a request.
    #[error("{operation} of `{name}` failed")]
    Graph {
        /// What was tried.
        operation: &'static str,
        /// The name of the application.
        name: String,
        /// The error of the request.
        #[source]
        source: Box<AzureCallError>,
    },
    /// The vault rejected a request.
    #[error("{operation} `{name}` in the vault failed")]
    Vault {
        /// What was tried.
        operation: &'static str,
        /// The name of the certificate or the secret.
        name: String,
        /// The error of the request.
        #[source]
        source: Box<azure_core::Error>,
    },
    /// Several applications have the display name, and none the unique name.
    #[error("{count} applications have the display name `{name}`")]
    SeveralApplications {
        /// The display name.
        name: String,
        /// Their number.
        count: usize,
    },
    /// The environment has no complete service principal for the component.
    #[error("the service principal `{name}` has no {missing}")]
    Incomplete {
        /// The name of the service principal.
        name: String,
        /// What it lacks.
        missing: &'static str,
    },
    /// The vault returned a certificate or a secret without a property.
    #[error("the vault returned `{name}` without {property}")]
    MissingProperty {
        /// The name of the certificate or the secret.
        name: SecretName,
        /// The property.
        property: &'static str,
    },
    /// The vault still has a deleted object that was purged.
    #[error("the vault still has the deleted object `{name}`, although it was purged")]
    StillDeleted {
        /// The name of the certificate or the secret.
        name: SecretName,
    },
    /// The deleted applications of the tenant cannot be listed.
    #[error("listing the deleted applications of the tenant failed")]
    DeletedApplications {
        /// The error of the request.
        #[source]
        source: Box<AzureCallError>,
    },
    /// Graph does not return the application, or returns it without the certificate that a component uses.
    #[error(
        "Microsoft Graph does not return the application `{name}` with its current certificate"
    )]
    NotRegistered {
        /// The name of the application.
        name: String,
    },
    /// The certificate of the vault has no usable key.
    #[error("the certificate `{name}` cannot sign token requests")]
    Key {
        /// The name of the certificate.
        name: String,
        /// The problem.
        #[source]
        source: ClientCertificateError,
    },
    /// The components would reject the credential document.
    #[error("the credential document of `{name}` is not valid")]
    Document {
        /// The name of the service principal.
        name: String,
        /// The problems of the document.
        #[source]
        source: DocumentError,
    },
    /// Entra ID issued no token for the new certificate, so the secret was not written.
    #[error("Entra ID issues no token for the certificate of `{name}`")]
    NoToken {
        /// The name of the service principal.
        name: String,
        /// The error of the token request.
        #[source]
        source: Box<azure_core::Error>,
    },
}

impl ErrorHint for ServicePrincipalError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Graph { source, .. } => {
                return source.permission_hint(
                    "give the signed-in identity the Graph permission `Application.ReadWrite.OwnedBy`",
                );
            }
            Self::Vault { source, .. } => {
                let grant = "assign Key Vault Administrator at the vault to the signed-in identity, and wait 10 minutes";
                let unreachable =
                    "create the vault with `lanyard create keyvault azure`, or correct --vault";
                return sdk_error_hint(&KEY_VAULT, source, grant).or(Some(unreachable.into()));
            }
            Self::DeletedApplications { source } => {
                return source.permission_hint(
                    "give the signed-in identity the Graph permission `Application.Read.All`, or leave out --purge",
                );
            }
            Self::NotRegistered { .. } | Self::StillDeleted { .. } => "run the command again",
            Self::SeveralApplications { .. } => {
                "delete the applications that are not used, or choose another prefix"
            }
            Self::Incomplete { .. } => {
                "run `lanyard create identities azure` first, with --enable-kms for the identity of KMS"
            }
            Self::MissingProperty { .. } => "check that no proxy answers in the place of the vault",
            Self::Key { .. } => "delete the certificate; the next run creates a new one",
            Self::Document { .. } => "choose a cloud with a token service, and check the tenant id",
            Self::NoToken { source, .. } => {
                let hint = TokenError::of(source).and_then(TokenError::hint);
                return hint.or(Some("run the command again".into()));
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use azure_core::error::ErrorKind;
    use azure_core::http::StatusCode;

    use super::*;

    #[test]
    fn hint_names_a_permission_only_if_one_is_missing() {
        for (code, expected) in [
            ("Authorization_RequestDenied", "`Application.ReadWrite.OwnedBy`"),
            ("Directory_QuotaExceeded", "delete applications that are not used"),
        ] {
            let error = ServicePrincipalError::Graph {
                operation: "creating",
                name: "harbour".to_owned(),
                source: Box::new(AzureCallError::Forbidden {
                    target: "POST graph.microsoft.com/v1.0/applications".to_owned(),
                    code: code.to_owned(),
                    message: "no".to_owned(),
                }),
            };
            let hint = error.hint().unwrap();
            assert!(hint.contains(expected), "{code}: {hint}");
        }
        for (code, expected) in [
            (Some("ForbiddenByRbac"), "assign Key Vault Administrator"),
            (Some("ForbiddenByFirewall"), "network rules"),
            (None, "lanyard create keyvault azure"),
        ] {
            let kind = match code {
                Some(code) => ErrorKind::HttpResponse {
                    status: StatusCode::Forbidden,
                    error_code: Some(code.to_owned()),
                    raw_response: None,
                },
                None => ErrorKind::Io,
            };
            let error = ServicePrincipalError::Vault {
                operation: "reading",
                name: "harbour".to_owned(),
                source: Box::new(azure_core::Error::with_message(kind, "no")),
            };
            let hint = error.hint().unwrap();
            assert!(hint.contains(expected), "{code:?}: {hint}");
        }
    }
}
