//! The Azure that the cases run on: a local Azure or a real subscription.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::Failed;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::runtime::Runtime;

use crate::client_program::{ClientInputs, EnvironmentVariables};
use crate::custom_cloud::CustomCloudUrls;
use crate::file_error::FileError;
use crate::live_subscription::LiveSubscription;
use crate::local_azure::{ControlApi, LocalAzure, LocalAzureError};
use crate::recording_proxy::ForwardTarget;
use crate::sign_in_method::SignInMethod;

/// The scope of every token that the cases request.
const SCOPE: &str = "https://management.azure.com/.default";
/// The public client in which users sign in.
const AZURE_CLI: &str = "04b07795-8ddb-461a-bbee-02f9e1bf7b46";

/// The Azure for the cases could not be prepared.
#[derive(Debug, Error)]
pub(crate) enum AzureTargetError {
    #[error(transparent)]
    StartLocalAzure(#[from] LocalAzureError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the seed data of the local Azure has no {0}")]
    MissingSeedData(&'static str),
}

/// The Azure that the cases run on.
#[derive(Debug)]
pub(crate) enum AzureTarget {
    Local(Arc<LocalAzureTarget>),
    Live(LiveSubscription),
}

impl AzureTarget {
    /// The local Azure, for cases that need one.
    pub(crate) fn local(&self) -> Result<&LocalAzureTarget, Failed> {
        match self {
            Self::Local(local) => Ok(local),
            Self::Live(_) => Err("this case needs a local Azure".into()),
        }
    }
}

/// A local Azure with the credentials of its test clients.
#[derive(Debug)]
pub(crate) struct LocalAzureTarget {
    pub(crate) azure: LocalAzure,
    test_clients: TestClientCredentials,
    vault_reader: String,
    certificate_file: PathBuf,
    token_file: PathBuf,
    /// The resource ID of the seeded storage account.
    storage_account: String,
    names: HostedClusterNames,
}

/// Names from the HostedCluster for which the local Azure was seeded.
#[derive(Debug, Clone)]
pub(crate) struct HostedClusterNames {
    pub(crate) subscription: String,
    pub(crate) resource_group: String,
    /// A resource group that the test clients have no role for.
    pub(crate) forbidden_resource_group: String,
    /// The host name of the vault with the component credentials.
    pub(crate) vault_host: String,
    /// The tenant of that vault and of the identity that reads it. The test clients belong to the cluster's
    /// tenant.
    pub(crate) vault_tenant: String,
    /// The component whose credential the cases use.
    pub(crate) component: String,
    /// The vault secret with that component's credential.
    pub(crate) component_secret: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TestClientCredentials {
    tenant: String,
    vault_host: String,
    secret_name: String,
    /// A secret in the same vault that the test clients may not read.
    withheld_secret_name: String,
    secret: SecretClientCredentials,
    certificate: CertificateClientCredentials,
    federated: FederatedClientCredentials,
    user: UserCredentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretClientCredentials {
    client_id: String,
    object_id: String,
    client_secret: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CertificateClientCredentials {
    client_id: String,
    object_id: String,
    certificate_pem: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FederatedClientCredentials {
    client_id: String,
}

lanyard_vocabulary::debug_fields!(SecretClientCredentials { client_id });

lanyard_vocabulary::debug_fields!(CertificateClientCredentials { client_id });

/// The user account of the test clients, as a variable of commands.
#[derive(Deserialize, Serialize)]
#[serde(rename_all(deserialize = "camelCase"))]
struct UserCredentials {
    #[serde(rename(serialize = "name"))]
    user_principal_name: String,
    object_id: String,
    password: String,
}

lanyard_vocabulary::debug_fields!(UserCredentials { user_principal_name });

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeedDataResponse {
    imds: ImdsSeedData,
    storage_accounts: Vec<StorageAccountSeedData>,
}

#[derive(Debug, Deserialize)]
struct StorageAccountSeedData {
    resource: String,
}

#[derive(Debug, Deserialize)]
struct ImdsSeedData {
    assigned: Vec<String>,
}

#[derive(Deserialize)]
struct MintedTokenResponse {
    token: String,
}

impl LocalAzureTarget {
    /// Starts a local Azure for a HostedCluster in YAML and writes the credential files of its test clients.
    pub(crate) fn start(
        lanyard: &Path,
        hosted_cluster: &str,
        place: HostedClusterNames,
        runtime: &Runtime,
    ) -> Result<Self, AzureTargetError> {
        let azure = LocalAzure::start(lanyard, hosted_cluster)?;
        let (test_clients, seed_data, minted) = runtime.block_on(async {
            let test_clients: TestClientCredentials =
                azure.control_api().get("test-clients").await?;
            let seed_data: SeedDataResponse = azure.control_api().get("state").await?;
            let minted: MintedTokenResponse =
                azure.control_api().post("federated-token", &json!({})).await?;
            Ok::<_, LocalAzureError>((test_clients, seed_data, minted))
        })?;
        let vault_reader =
            seed_data.imds.assigned.into_iter().next().ok_or(AzureTargetError::MissingSeedData(
                "identity that is assigned to the node",
            ))?;
        let storage_account = seed_data.storage_accounts.into_iter().next();
        let storage_account =
            storage_account.ok_or(AzureTargetError::MissingSeedData("storage account"))?.resource;
        let certificate = azure.directory().join("test-client.pem");
        write_file(&certificate, &test_clients.certificate.certificate_pem)?;
        let token_file = azure.directory().join("test-client-token");
        write_file(&token_file, &minted.token)?;
        Ok(Self {
            azure,
            test_clients,
            vault_reader,
            certificate_file: certificate,
            token_file,
            storage_account,
            names: place,
        })
    }

    /// The inputs of lifecycles, whose client owns the subscription. Permits the client to manage the objects of
    /// the test clients' vault and the blobs of the storage account.
    pub(crate) fn prepare_lifecycles(
        &self,
        runtime: &Runtime,
    ) -> Result<ClientInputs, LocalAzureError> {
        let inputs = self.inputs(SignInMethod::Secret);
        let vault = self.test_clients.vault_host.split('.').next().unwrap_or_default();
        let group = format!(
            "/subscriptions/{}/resourceGroups/{}",
            self.names.subscription, self.names.resource_group
        );
        let roles = [
            (
                "Key Vault Administrator",
                format!("{group}/providers/Microsoft.KeyVault/vaults/{vault}"),
            ),
            ("Storage Blob Data Contributor", self.storage_account.clone()),
        ];
        for (role, scope) in roles {
            let body = json!({ "principal": inputs.client, "role": role, "scope": scope });
            runtime.block_on(self.control_api().post::<Value>("role-assignments", &body))?;
        }
        let account = self.storage_account.rsplit('/').next().unwrap_or_default();
        Ok(ClientInputs {
            object_id: self.test_clients.secret.object_id.clone(),
            storage_account: account.to_owned(),
            ..inputs
        })
    }

    /// The object ID of the client of [`SignInMethod::Secret`], which owns the subscription.
    pub(crate) fn owner_object_id(&self) -> &str {
        &self.test_clients.secret.object_id
    }

    /// The temporary directory of the local Azure.
    pub(crate) fn directory(&self) -> &Path {
        self.azure.directory()
    }

    /// The variables of the commands of the Azure CLI: credentials and IDs of the test clients, and URLs.
    pub(crate) async fn command_variables(&self) -> Result<Value, LocalAzureError> {
        let clients = &self.test_clients;
        let federated_token = async |claims: Value| {
            let minted: MintedTokenResponse =
                self.control_api().post("federated-token", &claims).await?;
            Ok::<_, LocalAzureError>(minted.token)
        };
        Ok(json!({
            "tenant": clients.tenant,
            "subscription": self.names.subscription,
            "owner": {
                "client_id": clients.secret.client_id,
                "object_id": clients.secret.object_id,
                "secret": clients.secret.client_secret,
            },
            "certificate": {
                "client_id": clients.certificate.client_id,
                "object_id": clients.certificate.object_id,
                "file": self.certificate_file,
            },
            "federated": {
                "client_id": clients.federated.client_id,
                "token": federated_token(json!({})).await?,
                "token_of_other_subject":
                    federated_token(json!({ "subject": "system:serviceaccount:test-clients:other" })).await?,
                "token_of_other_audience":
                    federated_token(json!({ "audience": "api://other" })).await?,
            },
            "user": clients.user,
            "machine": { "client_id": self.vault_reader },
            "custom_cloud": self.azure.custom_cloud(),
            "control": self.control_api().url(),
        }))
    }

    /// The host name of the vault with the component credentials.
    pub(crate) fn vault_host(&self) -> &str {
        &self.names.vault_host
    }

    /// The client id of the node's managed identity, which reads the vault.
    pub(crate) fn vault_reader(&self) -> &str {
        &self.vault_reader
    }

    /// Environment variables that route upstream clients to this local Azure.
    pub(crate) fn client_environment(&self) -> EnvironmentVariables {
        interception_environment(self.azure.proxy_url(), self.azure.ca_bundle())
    }

    /// Environment variables that route lanyard's programs to this local Azure. They include the IMDS
    /// address, because requests to IMDS never go through a proxy.
    pub(crate) fn lanyard_environment(&self) -> EnvironmentVariables {
        let mut environment = self.client_environment();
        environment.insert("AZURE_POD_IDENTITY_AUTHORITY_HOST", self.azure.proxy_url().into());
        environment
    }

    /// Environment variables that sign lanyard's commands in as the owner of the subscription.
    pub(crate) fn lanyard_sign_in(&self) -> EnvironmentVariables {
        let owner = &self.test_clients.secret;
        EnvironmentVariables::from([
            ("AZURE_TENANT_ID", self.test_clients.tenant.clone().into()),
            ("AZURE_SUBSCRIPTION_ID", self.names.subscription.clone().into()),
            ("AZURE_CLIENT_ID", owner.client_id.clone().into()),
            ("AZURE_CLIENT_SECRET", owner.client_secret.clone().into()),
        ])
    }

    /// Environment variables for clients of the custom cloud: they trust the local Azure, and use no proxy.
    pub(crate) fn custom_cloud_environment(&self) -> EnvironmentVariables {
        let roots = self.azure.ca_bundle();
        let names = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"];
        let trust = names.into_iter().map(|name| (name, roots.into()));
        // The Azure CLI would ask `login.microsoftonline.com` whether it knows the cloud.
        trust.chain([("AZURE_CORE_INSTANCE_DISCOVERY", "false".into())]).collect()
    }

    /// The URLs of the custom cloud.
    pub(crate) fn custom_cloud(&self) -> CustomCloudUrls {
        self.azure.custom_cloud()
    }

    pub(crate) const fn control_api(&self) -> &ControlApi {
        self.azure.control_api()
    }

    /// The URL of the intercepting proxy.
    pub(crate) fn proxy_url(&self) -> &str {
        self.azure.proxy_url()
    }

    /// The file with the CA certificate of the local Azure, in PEM.
    pub(crate) fn authority_file(&self) -> &Path {
        self.azure.ca_file()
    }

    /// Issues a new version of the component's credential.
    pub(crate) async fn rotate_component_credential(&self) -> Result<Value, LocalAzureError> {
        self.control_api().rotate_credential(&self.names.component, 0).await
    }

    /// Credentials and endpoints for a client that authenticates with `holder`.
    pub(crate) fn inputs(&self, holder: SignInMethod) -> ClientInputs {
        let (clients, place) = (&self.test_clients, &self.names);
        let user = &clients.user;
        let client: &str = match holder {
            SignInMethod::Certificate => &clients.certificate.client_id,
            SignInMethod::Secret => &clients.secret.client_id,
            SignInMethod::Federated => &clients.federated.client_id,
            SignInMethod::ManagedIdentity => &self.vault_reader,
            SignInMethod::User => AZURE_CLI,
        };
        let (tenant, vault_host, secret_name) = match holder {
            SignInMethod::ManagedIdentity => {
                (&place.vault_tenant, &place.vault_host, &place.component_secret)
            }
            _ => (&clients.tenant, &clients.vault_host, &clients.secret_name),
        };
        ClientInputs {
            tenant: tenant.clone(),
            client: client.to_owned(),
            certificate: self.certificate_file.display().to_string(),
            client_secret: clients.secret.client_secret.clone(),
            token_file: self.token_file.display().to_string(),
            username: user.user_principal_name.clone(),
            password: user.password.clone(),
            scope: SCOPE.to_owned(),
            subscription: place.subscription.clone(),
            resource_group: place.resource_group.clone(),
            vault: format!("https://{vault_host}"),
            secret_name: secret_name.clone(),
            ..ClientInputs::default()
        }
    }
}

impl AzureTarget {
    /// The inputs of a client that authenticates with `holder`; `None` if this Azure has no such identity.
    pub(crate) fn inputs(&self, holder: SignInMethod) -> Option<ClientInputs> {
        match self {
            Self::Local(local) => Some(local.inputs(holder)),
            Self::Live(live) => live.inputs(holder, SCOPE),
        }
    }

    /// The inputs for a case in which access is denied: a secret and a resource group that exist but that the
    /// client has no role for. `None` on a real subscription, which need not have any.
    pub(crate) fn denied_inputs(&self, holder: SignInMethod) -> Option<ClientInputs> {
        let Self::Local(local) = self else { return None };
        Some(ClientInputs {
            secret_name: local.test_clients.withheld_secret_name.clone(),
            resource_group: local.names.forbidden_resource_group.clone(),
            ..local.inputs(holder)
        })
    }

    /// Environment variables that route a client to this Azure.
    pub(crate) fn client_environment(&self) -> EnvironmentVariables {
        match self {
            Self::Local(local) => local.client_environment(),
            Self::Live(_) => EnvironmentVariables::new(),
        }
    }

    /// Where the recording proxy forwards requests.
    pub(crate) fn forward_target(&self) -> Result<ForwardTarget, AzureTargetError> {
        match self {
            Self::Local(local) => {
                let path = local.azure.ca_file();
                let roots = fs::read(path).map_err(FileError::of("read", path))?;
                let proxy = Some(local.azure.proxy_url().to_owned());
                Ok(ForwardTarget { proxy, roots: Some(roots) })
            }
            Self::Live(_) => Ok(ForwardTarget::default()),
        }
    }
}

/// Environment variables that route the clients of every language through `proxy` and make them trust
/// `roots`.
pub(crate) fn interception_environment(proxy: &str, roots: &Path) -> EnvironmentVariables {
    let mut environment = EnvironmentVariables::new();
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
        environment.insert(name, proxy.into());
    }
    for name in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"] {
        environment.insert(name, roots.into());
    }
    environment
}

fn write_file(path: &Path, content: &str) -> Result<(), FileError> {
    fs::write(path, content).map_err(FileError::of("write", path))
}
