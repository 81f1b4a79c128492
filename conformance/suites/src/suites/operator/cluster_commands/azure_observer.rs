//! Reads and changes the local Azure as another tool would.

use std::collections::BTreeSet;

use libtest_mimic::Failed;
use reqwest::Method;
use serde_json::{Value, json};

use crate::azure_target::LocalAzureTarget;
use crate::sign_in_method::SignInMethod;
use crate::suites::failed_with_causes;
use crate::waiting::eventually;

const GROUPS_VERSION: &str = "2021-04-01";
const NETWORK_VERSION: &str = "2023-11-01";
const MANAGEMENT_GROUP: &str = "harbour2-management";
const MANAGEMENT_NETWORK: &str =
    "/resourceGroups/harbour2-management/providers/Microsoft.Network/virtualNetworks/management";

/// A client of Azure Resource Manager that owns the subscription.
pub(super) struct AzureObserver {
    client: reqwest::Client,
    subscription: String,
    token: String,
}

impl AzureObserver {
    /// Signs in.
    pub(super) async fn start(azure: &LocalAzureTarget) -> Result<Self, Failed> {
        let authority = std::fs::read(azure.authority_file())?;
        let client = reqwest::Client::builder()
            .proxy(reqwest::Proxy::all(azure.proxy_url()).map_err(failed_with_causes)?)
            .tls_certs_only([
                reqwest::Certificate::from_pem(&authority).map_err(failed_with_causes)?
            ])
            .build()
            .map_err(failed_with_causes)?;
        let inputs = azure.inputs(SignInMethod::Secret);
        let form = [
            ("client_id", inputs.client.as_str()),
            ("client_secret", &inputs.client_secret),
            ("grant_type", "client_credentials"),
            ("scope", &inputs.scope),
        ];
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let url = format!("https://login.microsoftonline.com/{}/oauth2/v2.0/token", inputs.tenant);
        let request =
            client.post(url).header("content-type", "application/x-www-form-urlencoded").body(form);
        let reply = request.send().await.map_err(failed_with_causes)?;
        let reply: Value = serde_json::from_str(&reply.text().await.map_err(failed_with_causes)?)?;
        let token = reply["access_token"].as_str().ok_or("the sign-in failed")?.to_owned();
        Ok(Self { client, subscription: inputs.subscription, token })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        version: &str,
        body: Option<Value>,
    ) -> Result<Value, Failed> {
        let subscription = &self.subscription;
        let url = format!(
            "https://management.azure.com/subscriptions/{subscription}{path}?api-version={version}"
        );
        let mut request = self.client.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let reply = request.send().await.map_err(failed_with_causes)?;
        let status = reply.status();
        let text = reply.text().await.map_err(failed_with_causes)?;
        if !status.is_success() {
            return Err(format!("{path}: {status}: {text}").into());
        }
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    /// The ids of all groups, resources and role assignments of the subscription, in lower case.
    pub(super) async fn resource_ids(&self) -> Result<BTreeSet<String>, Failed> {
        let mut ids = BTreeSet::new();
        for (path, version) in [
            ("/resources", GROUPS_VERSION),
            ("/resourcegroups", GROUPS_VERSION),
            ("/providers/Microsoft.Authorization/roleAssignments", "2022-04-01"),
        ] {
            let listed = self.send(Method::GET, path, version, None).await?;
            let values = listed["value"].as_array().into_iter().flatten();
            ids.extend(values.filter_map(|it| Some(it["id"].as_str()?.to_ascii_lowercase())));
        }
        Ok(ids)
    }

    /// Creates the virtual network of a management cluster, with a subnet for private link services. Returns the id
    /// of the subnet.
    pub(super) async fn create_management_network(&self) -> Result<String, Failed> {
        self.create_group(MANAGEMENT_GROUP).await?;
        let subnet = json!({
            "name": "pls-nat-subnet",
            "properties": {
                "addressPrefix": "10.1.64.0/24", "privateLinkServiceNetworkPolicies": "Disabled",
            },
        });
        let properties = json!({
            "addressSpace": { "addressPrefixes": ["10.1.0.0/16"] }, "subnets": [subnet],
        });
        let body = json!({ "location": "eastus", "properties": properties });
        self.send(Method::PUT, MANAGEMENT_NETWORK, NETWORK_VERSION, Some(body)).await?;
        eventually("the network of the management cluster is created", async || {
            let network = self.management_network().await?;
            Ok(network["properties"]["provisioningState"] == "Succeeded")
        })
        .await?;
        let network = self.management_network().await?;
        let id = network.pointer("/properties/subnets/0/id").and_then(Value::as_str);
        Ok(id.ok_or("the network has no subnet")?.to_owned())
    }

    /// The virtual network of the management cluster, with its subnets.
    pub(super) async fn management_network(&self) -> Result<Value, Failed> {
        self.send(Method::GET, MANAGEMENT_NETWORK, NETWORK_VERSION, None).await
    }

    pub(super) fn subscription(&self) -> &str {
        &self.subscription
    }

    /// Creates a public address in a group. Returns its id.
    pub(super) async fn create_address(&self, group: &str, tags: &Value) -> Result<String, Failed> {
        let path =
            format!("/resourceGroups/{group}/providers/Microsoft.Network/publicIPAddresses/router");
        let body = json!({
            "location": "eastus", "sku": { "name": "Standard" }, "tags": tags,
            "properties": { "publicIPAllocationMethod": "Static" },
        });
        self.send(Method::PUT, &path, NETWORK_VERSION, Some(body)).await?;
        Ok(format!("/subscriptions/{}{path}", self.subscription))
    }

    /// Starts the deletion of a public address.
    pub(super) async fn delete_address(&self, id: &str) -> Result<(), Failed> {
        let prefix = format!("/subscriptions/{}", self.subscription);
        let path = id.strip_prefix(&prefix).ok_or("the address is in another subscription")?;
        self.send(Method::DELETE, path, NETWORK_VERSION, None).await.map(drop)
    }

    /// Creates a resource group.
    pub(super) async fn create_group(&self, name: &str) -> Result<(), Failed> {
        let body = json!({ "location": "eastus" });
        let path = format!("/resourcegroups/{name}");
        self.send(Method::PUT, &path, GROUPS_VERSION, Some(body)).await.map(drop)
    }

    /// Starts the deletion of a resource group.
    pub(super) async fn delete_group(&self, name: &str) -> Result<(), Failed> {
        let path = format!("/resourcegroups/{name}");
        self.send(Method::DELETE, &path, GROUPS_VERSION, None).await.map(drop)
    }
}
