//! Where the cases run: on a local Azure, or on a real subscription.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use tokio::runtime::Runtime;

use crate::live::Live;
use crate::local_azure::{ControlApi, LocalAzure, LocalAzureError};
use crate::program::{Environment, Inputs};
use crate::recorder::Upstream;

/// How a client signs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    Certificate,
    Secret,
    Federated,
    ManagedIdentity,
}

impl Holder {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Secret => "secret",
            Self::Federated => "federated",
            Self::ManagedIdentity => "managed-identity",
        }
    }
}

/// The scope that every token case asks for.
const SCOPE: &str = "https://management.azure.com/.default";

/// The ground could not be prepared.
#[derive(Debug, Error)]
pub(crate) enum GroundError {
    #[error(transparent)]
    LocalAzure(#[from] LocalAzureError),
    #[error("could not {action} {}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the world of the local Azure has no {0}")]
    Absent(&'static str),
}

/// Where the cases run.
#[derive(Debug)]
pub(crate) enum Ground {
    Local(Box<Local>),
    Live(Live),
}

/// A local Azure with what other people's clients need to sign in.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) azure: LocalAzure,
    guests: Guests,
    vault_reader: String,
    certificate: PathBuf,
    token_file: PathBuf,
    place: Place,
}

/// Names from the HostedCluster that the world was made for.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) subscription: String,
    pub(crate) resource_group: String,
    /// A resource group that guests may not see.
    pub(crate) other_group: String,
    /// The host name of the vault with the credentials.
    pub(crate) vault_host: String,
    /// The tenant of that vault and of its reader; guests are of the cluster's.
    pub(crate) vault_tenant: String,
    /// A component.
    pub(crate) component: String,
    /// Its secret in that vault, which the reader may read.
    pub(crate) component_secret: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Guests {
    tenant: String,
    vault_host: String,
    secret_name: String,
    /// A secret beside it that guests may not read.
    withheld_secret_name: String,
    secret: SecretGuest,
    certificate: CertificateGuest,
    federated: FederatedGuest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretGuest {
    client_id: String,
    client_secret: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CertificateGuest {
    client_id: String,
    certificate_pem: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FederatedGuest {
    client_id: String,
}

impl fmt::Debug for SecretGuest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SecretGuest")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CertificateGuest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CertificateGuest")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Deserialize)]
struct World {
    imds: Imds,
}

#[derive(Debug, Deserialize)]
struct Imds {
    assigned: Vec<String>,
}

#[derive(Deserialize)]
struct Minted {
    token: String,
}

impl Local {
    /// Starts a local Azure for a HostedCluster in YAML and writes down what clients need.
    pub(crate) fn start(
        lanyard: &Path,
        hosted_cluster: &str,
        place: Place,
        runtime: &Runtime,
    ) -> Result<Self, GroundError> {
        let azure = LocalAzure::start(lanyard, hosted_cluster)?;
        let (guests, world, minted) = runtime.block_on(async {
            let guests: Guests = azure.control().read("guests").await?;
            let world: World = azure.control().read("world").await?;
            let minted: Minted = azure.control().write("federated-token", &json!({})).await?;
            Ok::<_, LocalAzureError>((guests, world, minted))
        })?;
        let vault_reader = world
            .imds
            .assigned
            .into_iter()
            .next()
            .ok_or(GroundError::Absent("identity that is assigned to the node"))?;
        let certificate = azure.directory().join("guest.pem");
        write(&certificate, &guests.certificate.certificate_pem)?;
        let token_file = azure.directory().join("guest-token");
        write(&token_file, &minted.token)?;
        Ok(Self { azure, guests, vault_reader, certificate, token_file, place })
    }

    /// The host name of the vault with the credentials.
    pub(crate) fn vault_host(&self) -> &str {
        &self.place.vault_host
    }

    /// The client id of the node's identity, which reads the vault.
    pub(crate) fn vault_reader(&self) -> &str {
        &self.vault_reader
    }

    /// What sends other people's clients to this local Azure.
    pub(crate) fn environment(&self) -> Environment {
        intercepted(self.azure.proxy(), self.azure.ca_bundle())
    }

    /// What sends our programs there: they never ask IMDS through a proxy.
    pub(crate) fn environment_of_ours(&self) -> Environment {
        let mut environment = self.environment();
        environment.insert("AZURE_POD_IDENTITY_AUTHORITY_HOST", self.azure.proxy().into());
        environment
    }

    /// The control API.
    pub(crate) const fn control(&self) -> &ControlApi {
        self.azure.control()
    }

    /// The URL of the intercepting proxy.
    pub(crate) fn proxy(&self) -> &str {
        self.azure.proxy()
    }

    /// The file with the local authority, PEM.
    pub(crate) fn authority(&self) -> &Path {
        self.azure.ca_file()
    }

    /// A new version of the credential that the node's identity may read.
    pub(crate) async fn rotate_component(&self) -> Result<serde_json::Value, LocalAzureError> {
        self.control().rotate(&self.place.component, 0).await
    }

    /// What a client signs in with, and where.
    pub(crate) fn inputs(&self, holder: Holder) -> Inputs {
        let (guests, place) = (&self.guests, &self.place);
        let client = match holder {
            Holder::Certificate => &guests.certificate.client_id,
            Holder::Secret => &guests.secret.client_id,
            Holder::Federated => &guests.federated.client_id,
            Holder::ManagedIdentity => &self.vault_reader,
        };
        let (tenant, vault_host, secret_name) = match holder {
            Holder::ManagedIdentity => {
                (&place.vault_tenant, &place.vault_host, &place.component_secret)
            }
            _ => (&guests.tenant, &guests.vault_host, &guests.secret_name),
        };
        Inputs {
            tenant: tenant.clone(),
            client: client.clone(),
            certificate: self.certificate.display().to_string(),
            client_secret: guests.secret.client_secret.clone(),
            token_file: self.token_file.display().to_string(),
            scope: SCOPE.to_owned(),
            subscription: place.subscription.clone(),
            resource_group: place.resource_group.clone(),
            vault: format!("https://{vault_host}"),
            secret_name: secret_name.clone(),
            ..Inputs::default()
        }
    }
}

impl Ground {
    /// The inputs of a client that signs in so; nothing if this ground has no such identity.
    pub(crate) fn inputs(&self, holder: Holder) -> Option<Inputs> {
        match self {
            Self::Local(local) => Some(local.inputs(holder)),
            Self::Live(live) => live.inputs(holder, SCOPE),
        }
    }

    /// What is different from [`Ground::inputs`] where access must be denied: objects and groups
    /// that exist and that the client has no role for. A real subscription need not have any.
    pub(crate) fn denied_inputs(&self, holder: Holder) -> Option<Inputs> {
        let Self::Local(local) = self else { return None };
        Some(Inputs {
            secret_name: local.guests.withheld_secret_name.clone(),
            resource_group: local.place.other_group.clone(),
            ..local.inputs(holder)
        })
    }

    /// What sends a client to this ground.
    pub(crate) fn environment(&self) -> Environment {
        match self {
            Self::Local(local) => local.environment(),
            Self::Live(_) => Environment::new(),
        }
    }

    /// Where a recorder passes requests on to.
    pub(crate) fn upstream(&self) -> Result<Upstream, GroundError> {
        match self {
            Self::Local(local) => {
                let path = local.azure.ca_file();
                let roots = fs::read(path).map_err(|source| GroundError::File {
                    action: "write",
                    path: path.to_path_buf(),
                    source,
                })?;
                let proxy = Some(local.azure.proxy().to_owned());
                Ok(Upstream { proxy, roots: Some(roots) })
            }
            Self::Live(_) => Ok(Upstream::default()),
        }
    }
}

/// Variables that send the clients of every language through `proxy`, trusting `roots`.
pub(crate) fn intercepted(proxy: &str, roots: &Path) -> Environment {
    let mut environment = Environment::new();
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
        environment.insert(name, proxy.into());
    }
    for name in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"] {
        environment.insert(name, roots.into());
    }
    environment
}

fn write(path: &Path, content: &str) -> Result<(), GroundError> {
    fs::write(path, content).map_err(|source| GroundError::File {
        action: "write",
        path: path.to_path_buf(),
        source,
    })
}
