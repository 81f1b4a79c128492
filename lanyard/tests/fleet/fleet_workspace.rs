//! A served local Azure with AKS clusters, a vault and a `fleet.yaml`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::infra_workspace::InfraWorkspace;

const AKS: &str = "/resourceGroups/aks/providers/Microsoft.ContainerService/managedClusters";
const VAULT: &str = "/resourceGroups/aks/providers/Microsoft.KeyVault/vaults/kv-shop-fleet";
const IDENTITIES: &str =
    "/resourceGroups/shop-identities/providers/Microsoft.ManagedIdentity/userAssignedIdentities";

/// A served local Azure, and the files of a fleet with the application `web`.
pub(crate) struct FleetWorkspace {
    pub(crate) azure: InfraWorkspace,
}

impl FleetWorkspace {
    /// Creates clusters without an issuer, and a vault. `oidc_issuer` is the field of the file.
    pub(crate) fn start(clusters: &[&str], oidc_issuer: &str) -> Self {
        let azure = InfraWorkspace::start();
        let workspace = Self { azure };
        workspace.put("/resourceGroups/aks", "2021-04-01", json!({ "location": "westeurope" }));
        for cluster in clusters {
            workspace.create_cluster(cluster);
        }
        let tenant = workspace.azure.variable("AZURE_TENANT_ID");
        workspace.put(
            VAULT,
            "2023-07-01",
            json!({ "location": "westeurope", "properties": {
                "tenantId": tenant, "sku": { "family": "A", "name": "standard" },
                "enableRbacAuthorization": true, "accessPolicies": [],
            } }),
        );
        workspace.write_file(clusters, oidc_issuer);
        workspace
    }

    fn write_file(&self, clusters: &[&str], oidc_issuer: &str) {
        let subscription = self.azure.variable("AZURE_SUBSCRIPTION_ID");
        let id = |path: &str| format!("/subscriptions/{subscription}{path}");
        let entry =
            |name: &&str| format!("  - {{ name: {name}, id: {} }}\n", id(&format!("{AKS}/{name}")));
        let clusters: String = clusters.iter().map(entry).collect();
        let vault = id(VAULT);
        let text = format!(
            "apiVersion: lanyard.dev/v1alpha1\nkind: Fleet\nmetadata: {{ name: shop }}\n\
             defaults: {{ identityResourceGroup: shop-identities, oidcIssuer: {oidc_issuer} }}\n\
             clusters:\n{clusters}\
             applications:\n  - name: web\n    namespace: shop\n    keyVault: {{ id: {vault}, secrets: [db-password] }}\n"
        );
        std::fs::write(self.azure.files().join("fleet.yaml"), text).unwrap();
    }

    /// Adds lines to the file.
    pub(crate) fn add_to_file(&self, lines: &str) {
        let text = self.azure.read_file("fleet.yaml") + lines;
        std::fs::write(self.azure.files().join("fleet.yaml"), text).unwrap();
    }

    /// The exit code and the JSON output of a command.
    pub(crate) fn run_json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let mut command = self.azure.piped_command(arguments);
        let output = command.args(["--output", "json"]).output().unwrap();
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Has a policy deny the identity of `web` on a cluster, or not any more.
    pub(crate) fn deny_identities_of(&self, cluster: &str, denies: bool) {
        if !denies {
            self.azure.control(Method::DELETE, "faults/policy", None);
            return;
        }
        let message = "Resource was disallowed by policy.";
        let effect = json!({
            "type": "status", "status": 403, "code": "RequestDisallowedByPolicy", "message": message,
        });
        let path = format!("*/shop-web-{cluster}");
        let rule = json!({
            "name": "policy", "service": "arm", "method": "PUT", "path": path, "effect": effect,
        });
        self.azure.control(Method::POST, "faults", Some(rule));
    }

    fn create_cluster(&self, name: &str) {
        let pool = json!({
            "name": "system", "mode": "System", "count": 1, "vmSize": "Standard_D4s_v4",
        });
        let body = json!({
            "location": "westeurope",
            "identity": { "type": "SystemAssigned" },
            "tags": { "owner": "platform" },
            "properties": {
                "dnsPrefix": name,
                "agentPoolProfiles": [pool],
                "autoUpgradeProfile": { "upgradeChannel": "stable" },
            },
        });
        self.put(&format!("{AKS}/{name}"), "2025-10-01", body);
    }

    /// Deletes a cluster, and creates one with the same name.
    pub(crate) fn create_cluster_again(&self, name: &str) {
        self.delete_cluster(name);
        self.create_cluster(name);
    }

    pub(crate) fn delete_cluster(&self, name: &str) {
        self.request(Method::DELETE, &format!("{AKS}/{name}"), "2025-10-01", None);
    }

    /// Creates the resource group and the identity of an application, as another tool would.
    pub(crate) fn create_identity(&self, application: &str, cluster: &str) {
        let body = || json!({ "location": "westeurope" });
        self.put("/resourceGroups/shop-identities", "2021-04-01", body());
        self.put(&identity(application, cluster), "2024-11-30", body());
    }

    pub(crate) fn cluster(&self, name: &str) -> Value {
        self.request(Method::GET, &format!("{AKS}/{name}"), "2025-10-01", None)
    }

    /// The federated credentials of an application's identity on a cluster.
    pub(crate) fn credentials(&self, application: &str, cluster: &str) -> Vec<Value> {
        let path = format!("{}/federatedIdentityCredentials", identity(application, cluster));
        let listed = self.request(Method::GET, &path, "2024-11-30", None);
        listed["value"].as_array().unwrap().clone()
    }

    pub(crate) fn change_subject(&self, application: &str, cluster: &str, subject: &str) {
        let mut credential = self.credentials(application, cluster).remove(0);
        credential["properties"]["subject"] = subject.into();
        let path = credential_path(application, cluster, &credential);
        let body = json!({ "properties": credential["properties"] });
        self.put(&path, "2024-11-30", body);
    }

    pub(crate) fn delete_credential(&self, application: &str, cluster: &str) {
        let credential = self.credentials(application, cluster).remove(0);
        let path = credential_path(application, cluster, &credential);
        self.request(Method::DELETE, &path, "2024-11-30", None);
    }

    pub(crate) fn delete_identity(&self, application: &str, cluster: &str) {
        self.request(Method::DELETE, &identity(application, cluster), "2024-11-30", None);
    }

    /// The role assignments at the scope of a secret itself.
    pub(crate) fn readers_of(&self, secret: &str) -> Vec<Value> {
        let scope = format!("{VAULT}/secrets/{secret}");
        let path = format!("{scope}/providers/Microsoft.Authorization/roleAssignments");
        let listed = self.request(Method::GET, &path, "2022-04-01", None);
        let assignments = listed["value"].as_array().unwrap().iter();
        let is_own = |it: &&Value| it["properties"]["scope"].as_str().unwrap().ends_with(&scope);
        assignments.filter(is_own).cloned().collect()
    }

    pub(crate) fn delete_readers_of(&self, secret: &str) {
        for assignment in self.readers_of(secret) {
            let id = assignment["id"].as_str().unwrap();
            let path = &id[id.find("/resourceGroups/").unwrap()..];
            self.request(Method::DELETE, path, "2022-04-01", None);
        }
    }

    fn put(&self, path: &str, version: &str, body: Value) {
        self.request(Method::PUT, path, version, Some(body));
    }

    fn request(&self, method: Method, path: &str, version: &str, body: Option<Value>) -> Value {
        self.azure.resource_request(method, &format!("{path}?api-version={version}"), body)
    }
}

fn identity(application: &str, cluster: &str) -> String {
    format!("{IDENTITIES}/shop-{application}-{cluster}")
}

fn credential_path(application: &str, cluster: &str, credential: &Value) -> String {
    let name = credential["name"].as_str().unwrap();
    format!("{}/federatedIdentityCredentials/{name}", identity(application, cluster))
}
