//! Seeds the subscription, the resource groups and the resources that the components' first requests read.

use lanyard_emulator_state::resources::resource_store::{
    ArmResource, RESOURCE_GROUP_TYPE, Subscription,
};
use lanyard_vocabulary::{ArmResourceId, EntraTenantId};
use serde_json::{Value, json};

use super::AzureSeeder;

/// The resource group of the platform, with the vaults and the identity of the node.
const PLATFORM_GROUP: &str = "platform";

impl AzureSeeder<'_> {
    pub(super) fn add_arm_resources(&mut self) {
        let plan = self.plan;
        let networks = [&plan.vnet_id, &plan.subnet_id, &plan.security_group_id];
        self.add_subscription(plan.subscription.as_str(), "lanyard", &plan.tenant);
        for id in networks {
            self.add_subscription(id.subscription(), "lanyard-network", &plan.tenant);
        }
        let groups = [
            self.managed_resource_group(),
            self.resource_group_of(&plan.vnet_id),
            self.resource_group_of(&plan.subnet_id),
            self.resource_group_of(&plan.security_group_id),
            self.dns_resource_group(),
            self.platform_resource_group(),
        ];
        for group in groups {
            let body = json!({ "location": plan.location, "properties": { "provisioningState": "Succeeded" } });
            let group = ArmResource::new(group.into(), RESOURCE_GROUP_TYPE, body, self.now);
            if self.azure.resources.resource(&group.id).is_none() {
                self.azure.resources.upsert(group);
            }
        }
        self.add_network();
        self.add_machines();
        self.add_dns();
    }

    /// Adds a subscription of a tenant, unless it exists.
    pub(super) fn add_subscription(&mut self, id: &str, name: &str, tenant: &EntraTenantId) {
        let resources = &mut self.azure.resources;
        if resources.subscription(id).is_none()
            && let Ok(id) = id.parse()
        {
            let (tenant, name) = (tenant.clone(), name.to_owned());
            resources.subscriptions.push(Subscription { id, tenant, name });
        }
    }

    /// The id of the resource group with virtual machines and disks.
    pub(super) fn managed_resource_group(&self) -> ArmResourceId {
        self.resource_group_id(&self.plan.managed_resource_group)
    }

    /// The id of the resource group with the public DNS zone.
    pub(super) fn dns_resource_group(&self) -> ArmResourceId {
        self.resource_group_id(&self.plan.dns_zone.resource_group)
    }

    /// The id of the platform's resource group.
    pub(super) fn platform_resource_group(&self) -> ArmResourceId {
        self.resource_group_id(PLATFORM_GROUP)
    }

    /// Returns the id of the resource group that contains a network resource.
    pub(super) fn resource_group_of(&self, id: &ArmResourceId) -> ArmResourceId {
        let name = id.resource_group().unwrap_or(PLATFORM_GROUP);
        match id.subscription().parse() {
            Ok(subscription) => {
                ArmResourceId::subscription_scope(&subscription).child("resourceGroups", name)
            }
            Err(_) => self.resource_group_id(name),
        }
    }

    fn resource_group_id(&self, name: &str) -> ArmResourceId {
        ArmResourceId::subscription_scope(&self.plan.subscription).child("resourceGroups", name)
    }

    /// Returns the virtual network of the subnet, if it differs from the plan's virtual network.
    fn separate_subnet_network(&self) -> Option<ArmResourceId> {
        let subnet = &self.plan.subnet_id;
        let name = subnet.name_of("virtualNetworks")?;
        let parent = self
            .resource_group_of(subnet)
            .provider_resource("Microsoft.Network/virtualNetworks", name);
        (!self.plan.vnet_id.contains(subnet)).then_some(parent)
    }

    fn add_network(&mut self) {
        let plan = self.plan;
        let other = self.separate_subnet_network();
        let network = |subnets: Vec<Value>| {
            json!({
                "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] },
                "subnets": subnets,
            })
        };
        let subnet = json!({
            "id": plan.subnet_id,
            "name": plan.subnet_id.name(),
            "type": "Microsoft.Network/virtualNetworks/subnets",
            "properties": {
                "addressPrefix": "10.0.0.0/24",
                "networkSecurityGroup": { "id": plan.security_group_id },
                "provisioningState": "Succeeded",
            },
        });
        self.add_regional_resource(
            plan.security_group_id.clone(),
            json!({ "securityRules": [], "subnets": [{ "id": plan.subnet_id }] }),
        );
        self.add_regional_resource(
            plan.vnet_id.clone(),
            network(if other.is_none() { vec![subnet.clone()] } else { Vec::new() }),
        );
        if let Some(other) = other {
            self.add_regional_resource(other, network(vec![subnet]));
        }
        self.add_regional_resource(
            plan.subnet_id.clone(),
            json!({
                "addressPrefix": "10.0.0.0/24",
                "networkSecurityGroup": { "id": plan.security_group_id },
            }),
        );
        let balancer = self
            .managed_resource_group()
            .provider_resource("Microsoft.Network/loadBalancers", plan.infra_id.as_str());
        let pool = balancer.child("backendAddressPools", plan.infra_id.as_str());
        self.add_regional_resource(
            balancer,
            json!({
                "frontendIPConfigurations": [],
                "backendAddressPools": [{ "id": pool, "name": plan.infra_id }],
            }),
        );
        let nic = format!("{}-worker-0-nic", plan.infra_id);
        let nic = self
            .managed_resource_group()
            .provider_resource("Microsoft.Network/networkInterfaces", &nic);
        self.add_regional_resource(
            nic,
            json!({
                "ipConfigurations": [{
                    "name": "pipConfig",
                    "properties": {
                        "primary": true,
                        "privateIPAddress": "10.0.0.4",
                        "subnet": { "id": plan.subnet_id },
                    },
                }],
            }),
        );
    }

    fn add_machines(&mut self) {
        let name = format!("{}-worker-0", self.plan.infra_id);
        let group = self.managed_resource_group();
        let disk = group.provider_resource("Microsoft.Compute/disks", &format!("{name}_OSDisk"));
        let nic =
            group.provider_resource("Microsoft.Network/networkInterfaces", &format!("{name}-nic"));
        let machine = group.provider_resource("Microsoft.Compute/virtualMachines", &name);
        self.add_regional_resource(
            disk.clone(),
            json!({ "diskSizeGB": 120, "diskState": "Attached" }),
        );
        self.add_regional_resource(
            machine,
            json!({
                "hardwareProfile": { "vmSize": "Standard_D4s_v5" },
                "storageProfile": { "osDisk": { "managedDisk": { "id": disk } } },
                "networkProfile": { "networkInterfaces": [{ "id": nic }] },
            }),
        );
    }

    fn add_dns(&mut self) {
        let (zone, plan) = (self.plan.dns_zone.name.clone(), self.plan);
        let public =
            self.dns_resource_group().provider_resource("Microsoft.Network/dnsZones", &zone);
        self.add_global_resource(
            public,
            json!({ "nameServers": ["ns1-01.azure-dns.com."], "zoneType": "Public" }),
        );
        let private = format!("{}.{zone}", plan.infra_id);
        let private = self
            .managed_resource_group()
            .provider_resource("Microsoft.Network/privateDnsZones", &private);
        self.add_global_resource(private.clone(), json!({ "numberOfRecordSets": 2 }));
        let record = json!({ "ttl": 30, "aRecords": [{ "ipv4Address": "10.0.0.4" }] });
        self.add_dns_record(private.child("A", "*.apps"), record);
    }

    /// Adds a resource in the plan's region.
    pub(super) fn add_regional_resource(&mut self, id: ArmResourceId, properties: Value) {
        let location = self.plan.location.clone();
        self.store_resource(id, json!({ "location": location, "properties": properties }));
    }

    /// Adds a resource without a region.
    fn add_global_resource(&mut self, id: ArmResourceId, properties: Value) {
        self.store_resource(id, json!({ "location": "global", "properties": properties }));
    }

    fn add_dns_record(&mut self, id: ArmResourceId, properties: Value) {
        self.store_resource(id, json!({ "properties": properties }));
    }

    /// Stores a resource as provisioned, unless it exists.
    pub(super) fn store_resource(&mut self, id: ArmResourceId, body: Value) {
        let mut body = body;
        body["properties"]["provisioningState"] = json!("Succeeded");
        self.store_resource_without_state(id, body);
    }

    /// Stores a resource of a type without a provisioning state.
    pub(super) fn store_resource_without_state(&mut self, id: ArmResourceId, body: Value) {
        let kind = id.resource_type().unwrap_or_default();
        let resource = ArmResource::new(id.into(), &kind, body, self.now);
        if self.azure.resources.resource(&resource.id).is_none() {
            self.azure.resources.upsert(resource);
        }
    }
}
