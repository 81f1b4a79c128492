//! A state that is seeded from a plan with nine identities.

use std::str::FromStr;
use std::sync::LazyLock;

use jiff::Timestamp;
use lanyard_clock::Clock as _;
use lanyard_emulator_core::token::{
    AccessTokenVersion, ClientAuthMethod, OptionalClaims, TokenGrant, TokenSubject,
    issue_access_token,
};
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::certificate_bundle::CredentialBundleFormat;
use lanyard_emulator_state::directory::graph_principal_id;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_vocabulary::{Cloud, Component, EntraClientId, ObjectEncoding};

use super::EngineFixture;
use crate::seed::apply_plan;
use crate::{DirectoryAccess, DnsZonePlan, IdentityPlan, KmsKeyPlan, SeedPlan, VaultPlan};

/// The time of the seed: [`super::start_time`].
pub const SEED_TIME: Timestamp = Timestamp::constant(1_795_262_400, 0);

pub(crate) fn parse_value<T: FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

/// Returns a plan with nine identities, for each bundle format and encoding.
pub fn nine_identity_plan() -> SeedPlan {
    let group = "/subscriptions/sub/resourceGroups";
    let vnet = format!("{group}/demo-vnet-abcde/providers/Microsoft.Network/virtualNetworks/vnet");
    let bundles = [
        CredentialBundleFormat::Pem,
        CredentialBundleFormat::LegacyPkcs12,
        CredentialBundleFormat::ModernPkcs12,
    ];
    let identity = |(at, component): (usize, Component)| IdentityPlan {
        component,
        client_id: None,
        secret_name: parse_value(&format!("demo-{}", component.definition().secret_suffix)),
        encoding: ObjectEncoding::ALL[at % 3],
        bundle: bundles[at / 3],
    };
    SeedPlan {
        tenant: parse_value("11111111-1111-4111-8111-111111111111"),
        subscription: parse_value("sub"),
        cloud: Cloud::Public,
        location: "eastus".to_owned(),
        managed_resource_group: "demo-abcde".to_owned(),
        subnet_id: parse_value(&format!("{vnet}/subnets/default")),
        vnet_id: parse_value(&vnet),
        security_group_id: parse_value(&format!(
            "{group}/demo-nsg-abcde/providers/Microsoft.Network/networkSecurityGroups/nsg"
        )),
        dns_zone: DnsZonePlan { name: "example.test".to_owned(), resource_group: "dns".to_owned() },
        infra_id: parse_value("demo-abcde"),
        vault: VaultPlan {
            name: parse_value("Platform-kv"),
            tenant: parse_value("22222222-2222-4222-8222-222222222222"),
        },
        kms_key: Some(KmsKeyPlan {
            vault: parse_value("demo-kms"),
            name: parse_value("etcd"),
            version: None,
        }),
        vault_reader_client_id: parse_value("33333333-3333-4333-8333-333333333333"),
        nodes: Vec::new(),
        identities: Component::ALL.into_iter().enumerate().map(identity).collect(),
        drills: Vec::new(),
        test_clients: false,
        directory_access: DirectoryAccess::Full,
    }
}

/// Returns a state with nine identities: a clone of a shared one, because key generation is slow.
pub fn seeded_nine_identities() -> (AzureState, IdGenerator) {
    static NINE: LazyLock<(AzureState, IdGenerator)> = LazyLock::new(|| {
        let mut plan = nine_identity_plan();
        plan.vault.tenant = plan.tenant.clone();
        plan.test_clients = true;
        seed_azure(&plan)
    });
    NINE.clone()
}

/// Issues an access token for a principal, like the token service.
pub fn issue_access_token_for(
    probe: &EngineFixture,
    client: EntraClientId,
    resource: &str,
) -> String {
    let state = &mut *probe.engine.state();
    let principal = state.azure.directory.service_principal_by_client_id(client).unwrap();
    let directory = &state.azure.directory;
    let tenant = directory.tenant(principal.tenant.as_str()).unwrap();
    let roles = if resource == "https://graph.microsoft.com" {
        directory.app_role_values(principal, graph_principal_id(&principal.tenant))
    } else {
        Vec::new()
    };
    let grant = TokenGrant {
        subject: TokenSubject::ServicePrincipal(principal),
        audience: resource,
        version: AccessTokenVersion::V1,
        auth_method: ClientAuthMethod::KeyOrToken,
        cloud: probe.engine.clouds.public(),
        optional: OptionalClaims { roles, ..OptionalClaims::default() },
    };
    let issued =
        issue_access_token(*state.azure.tokens, tenant, grant, probe.clock.now(), &mut state.ids)
            .unwrap();
    issued.token.expose().to_owned()
}

pub fn seed_azure(plan: &SeedPlan) -> (AzureState, IdGenerator) {
    let mut azure = AzureState::default();
    let mut ids = IdGenerator::seeded(uuid::Uuid::NAMESPACE_DNS);
    apply_plan(plan, &mut azure, &mut ids, SEED_TIME).unwrap();
    (azure, ids)
}
