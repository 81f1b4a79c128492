//! The kubeconfig with which lanyard and Helm reach the API server of a cluster.

use std::borrow::Cow;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lanyard_azure::{ArmBody as _, ArmClient, ArmRequest, AzureCallError, ManagedClusterBody};
use lanyard_clock::ErrorHint;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::fleet::{ClusterAccess, FleetCluster};
use crate::fleet_label::FleetLabel;

/// The scope of tokens for the API servers of all AKS clusters: the application "Azure Kubernetes Service AAD Server".
/// Source: `az aks get-credentials`, kubelogin.
pub const API_SERVER_SCOPE: &str = "6dae42f8-4368-4678-94ff-3960e28e3630/.default";

/// A kubeconfig for one cluster.
#[derive(Debug)]
pub struct ClusterKubeconfig(KubeconfigFile);

#[derive(Debug)]
enum KubeconfigFile {
    OfUser(PathBuf),
    /// A file with mode 0600, which ends with this value.
    Private(NamedTempFile),
}

/// The kubeconfig of a cluster cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// Azure does not give out the kubeconfig.
    #[error("the kubeconfig of the cluster `{cluster}` cannot be read")]
    Read {
        /// The name of the cluster in the fleet.
        cluster: FleetLabel,
        /// The cause.
        source: AzureCallError,
    },
    /// The reply contains no kubeconfig.
    #[error("the reply of Azure for the cluster `{cluster}` contains no kubeconfig: {reason}")]
    Malformed {
        /// The name of the cluster in the fleet.
        cluster: FleetLabel,
        /// What is missing.
        reason: &'static str,
    },
    /// The private file cannot be written.
    #[error("the kubeconfig cannot be written to a temporary file")]
    Write(#[from] std::io::Error),
}

impl ErrorHint for KubeconfigError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Read { source, .. } => source.hint(),
            Self::Malformed { .. } => Some(Cow::Borrowed(
                "compare with `az aks get-credentials --file -`, or use `access: kubeconfig`",
            )),
            Self::Write(_) => Some(Cow::Borrowed("check TMPDIR and its free space")),
        }
    }
}

impl ClusterKubeconfig {
    /// Reads the kubeconfig of a cluster. `token` is a token for [`API_SERVER_SCOPE`], with which credential plugins such
    /// as kubelogin are replaced.
    ///
    /// # Errors
    ///
    /// [`KubeconfigError`].
    pub async fn read(
        arm: &ArmClient,
        cluster: &FleetCluster,
        token: &str,
    ) -> Result<Self, KubeconfigError> {
        let action = match &cluster.access {
            ClusterAccess::Kubeconfig(path) => {
                return Ok(Self(KubeconfigFile::OfUser(path.clone())));
            }
            ClusterAccess::Entra => "listClusterUserCredential",
            ClusterAccess::Admin => "listClusterAdminCredential",
        };
        let name = || cluster.name.clone();
        let path = format!("{}/{action}", cluster.id);
        let request = ArmRequest::post(path, ManagedClusterBody::API_VERSION, None);
        let reply = arm.send(&request).await;
        let reply = reply.map_err(|source| KubeconfigError::Read { cluster: name(), source })?;
        let kubeconfig = kubeconfig_with_token(&reply.body, token)
            .map_err(|reason| KubeconfigError::Malformed { cluster: name(), reason })?;
        // Such a file is readable only for its owner.
        let mut file = NamedTempFile::with_prefix("lanyard-kubeconfig-")?;
        file.write_all(kubeconfig.to_string().as_bytes())?;
        Ok(Self(KubeconfigFile::Private(file)))
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        match &self.0 {
            KubeconfigFile::OfUser(path) => path,
            KubeconfigFile::Private(file) => file.path(),
        }
    }
}

/// The first kubeconfig of a reply, whose credential plugins are replaced by the token.
fn kubeconfig_with_token(reply: &Value, token: &str) -> Result<Value, &'static str> {
    let encoded = reply.pointer("/kubeconfigs/0/value").and_then(Value::as_str);
    let encoded = encoded.ok_or("`kubeconfigs` is empty")?;
    let text = STANDARD.decode(encoded).map_err(|_invalid| "it is not base64")?;
    let text = std::str::from_utf8(&text).map_err(|_invalid| "it is not UTF-8")?;
    let mut kubeconfig: Value =
        serde_saphyr::from_str(text).map_err(|_invalid| "it is not YAML")?;
    let users =
        kubeconfig.get_mut("users").and_then(Value::as_array_mut).ok_or("it has no users")?;
    for user in users {
        let uses_plugin = user.pointer("/user/exec").is_some_and(|it| !it.is_null())
            || user.pointer("/user/auth-provider").is_some_and(|it| !it.is_null());
        if uses_plugin {
            user["user"] = json!({ "token": token });
        }
    }
    Ok(kubeconfig)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(kubeconfig: &str) -> Value {
        json!({ "kubeconfigs": [{ "name": "clusterUser", "value": STANDARD.encode(kubeconfig) }] })
    }

    #[test]
    fn credential_plugins_are_replaced_by_the_token_and_all_else_stays() {
        let kubeconfig = "
apiVersion: v1
clusters: [{ name: c, cluster: { server: 'https://c.azmk8s.io:443' } }]
users:
- { name: plugin, user: { exec: { command: kubelogin } } }
- { name: old, user: { auth-provider: { name: azure } } }
- { name: certificate, user: { client-certificate-data: abc } }
";
        let found = kubeconfig_with_token(&reply(kubeconfig), "t").unwrap();
        assert_eq!(found["users"][0]["user"], json!({ "token": "t" }));
        assert_eq!(found["users"][1]["user"], json!({ "token": "t" }));
        assert_eq!(found["users"][2]["user"], json!({ "client-certificate-data": "abc" }));
        assert_eq!(found["clusters"][0]["cluster"]["server"], "https://c.azmk8s.io:443");
    }

    #[test]
    fn reply_without_a_kubeconfig_is_an_error() {
        for (reply, problem) in [
            (json!({ "kubeconfigs": [] }), "`kubeconfigs` is empty"),
            (json!({ "kubeconfigs": [{ "value": "%" }] }), "it is not base64"),
            (reply("a: ["), "it is not YAML"),
            (reply("a: b"), "it has no users"),
        ] {
            assert_eq!(kubeconfig_with_token(&reply, "t").unwrap_err(), problem);
        }
    }
}
