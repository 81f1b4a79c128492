//! Seeds principals and a vault for test clients. They use authentication methods that no component
//! uses, and may read a secret, a certificate and a key in the vault.
//!
//! A test client accesses the subscription and its vault with one identity, which has one tenant: that of the
//! subscription. The vault with the credentials may trust another tenant, so test clients have a vault of
//! their own.

use std::collections::BTreeMap;

use lanyard_emulator_keyvault::certificate_versions::{
    NewCertificateVersion, StoreCertificateError, store_imported_certificate,
};
use lanyard_emulator_state::certificate_bundle::encode_pem;
use lanyard_emulator_state::client_certificate::{
    LeafCertificateSpec, self_signed_leaf_certificate,
};
use lanyard_emulator_state::directory::{
    Application, FederatedCredential, KeyCredential, PasswordCredential, ServicePrincipal,
    ServicePrincipalKind, TrustedIssuer,
};
use lanyard_emulator_state::identity_registry::TestClients;
use lanyard_emulator_state::keys::{EllipticCurve, RedactedText, RsaKey};
use lanyard_emulator_state::vaults::bundle_form::BundleForm;
use lanyard_emulator_state::vaults::certificate_content::CertificateContent;
use lanyard_emulator_state::vaults::der_certificate::DerCertificate;
use lanyard_emulator_state::vaults::key_content::KeyContent;
use lanyard_emulator_state::vaults::object_store::{
    DeletedNameConflict, StoredObjectAttributes, StoredObjectVersion,
};
use lanyard_emulator_state::vaults::vault::{SecretContent, VaultStore};
use lanyard_vocabulary::{ArmResourceId, EntraClientId, RoleDefinitionId, VaultName};
use uuid::{Uuid, uuid};

use super::tenants::validity_of_years;
use super::{AzureSeeder, SeedError};

/// The number of keys for test clients: one for the certificate, one for the token issuer.
pub(super) const KEY_COUNT: usize = 2;

const READER: RoleDefinitionId = RoleDefinitionId(uuid!("acdd72a7-3385-48ef-bd42-f606fba81ae7"));
const CERTIFICATE_USER: RoleDefinitionId =
    RoleDefinitionId(uuid!("db79e9a7-68ee-4b58-9aeb-b90e7c24fcba"));

/// An issuer that can never be registered (RFC 6761), so that no real issuer is trusted.
const ISSUER: &str = "https://issuer.lanyard.test/test-clients";
const ISSUER_KEY: &str = "test-clients-1";
const SUBJECT: &str = "system:serviceaccount:test-clients:workload";
const AUDIENCE: &str = "api://AzureADTokenExchange";
const READABLE_SECRET: &str = "test-secret";
/// A secret in the same vault that the test clients may not read.
const WITHHELD_SECRET: &str = "withheld-secret";
/// The common name of the test clients' certificate.
const SUBJECT_NAME: &str = "test-certificate";
/// The names of the same certificate, once for each format of a vault's secret.
const CERTIFICATE_OBJECTS: [(&str, BundleForm); 2] =
    [("test-certificate", BundleForm::Pkcs12), ("test-certificate-pem", BundleForm::Pem)];

/// Keys on the curves that vaults and cryptographic libraries support.
const CURVE_KEYS: [(&str, EllipticCurve); 3] = [
    ("test-key-p256", EllipticCurve::P256),
    ("test-key-p384", EllipticCurve::P384),
    ("test-key-p521", EllipticCurve::P521),
];

impl AzureSeeder<'_> {
    pub(super) fn add_test_clients(&mut self) -> Result<(), SeedError> {
        let secret_client = self.add_application("test-secret");
        let secret = self.ids.named_uuid("test-secret/secret").simple();
        let secret = RedactedText::new(format!("{secret}~test"));
        let certificate_client = self.add_application("test-certificate");
        let key = self.next_rsa_key()?;
        let der = self_signed_leaf_certificate(&LeafCertificateSpec {
            subject: SUBJECT_NAME,
            serial: self.ids.next_uuid(),
            validity: validity_of_years(self.now, 1),
            key: &key,
        })?;
        let pem = encode_pem(Some(key.pkcs8()), &[&der]);
        let certificate = RedactedText::new(String::from_utf8_lossy(&pem).into_owned());
        self.register_credentials(secret_client, &secret, certificate_client, &der);
        let federated_client = self.add_federated_identity()?;
        let name = self.required_test_client_vault_name()?;
        let (vault, vault_host) = (self.test_client_vault_id(&name), self.vault_host(&name));
        self.add_vault(vault.clone(), &name, &self.plan.tenant);
        self.add_test_client_objects(&key, &der)?;
        for client in [secret_client, certificate_client, federated_client] {
            self.grant_test_client_access(client, &vault, client == secret_client);
        }
        self.grant_directory_access(secret_client);
        self.add_vault_reader_subscription();
        let administrator = self.add_administrator();
        self.azure.registry.test_clients = Some(TestClients {
            tenant: self.plan.tenant.clone(),
            subscription: self.plan.subscription.clone(),
            user_object_id: administrator.object_id,
            user_principal_name: administrator.principal_name,
            user_password: administrator.password,
            secret_client,
            secret,
            certificate_client,
            certificate,
            federated_client,
            issuer: ISSUER.to_owned(),
            key_id: ISSUER_KEY.to_owned(),
            subject: SUBJECT.to_owned(),
            audience: AUDIENCE.to_owned(),
            vault_host,
            secret_name: READABLE_SECRET.to_owned(),
            withheld_secret_name: WITHHELD_SECRET.to_owned(),
        });
        Ok(())
    }

    fn add_application(&mut self, name: &str) -> EntraClientId {
        let named_uuid = |what: &str| self.ids.named_uuid(&format!("{name}/{what}"));
        let client_id = EntraClientId::from(named_uuid("client-id"));
        let (principal_id, object_id) = (named_uuid("principal"), named_uuid("application"));
        let tenant = &self.plan.tenant;
        let directory = &mut self.azure.directory;
        let kind = ServicePrincipalKind::Application;
        let principal = ServicePrincipal::new(principal_id, client_id, tenant.clone(), name, kind);
        directory.insert_service_principal(principal.created_at(self.now));
        directory.insert_application(Application::new(
            object_id,
            client_id,
            tenant.clone(),
            name,
            self.now,
        ));
        client_id
    }

    fn register_credentials(
        &mut self,
        secret_client: EntraClientId,
        secret: &RedactedText,
        certificate_client: EntraClientId,
        der: &[u8],
    ) {
        let expires = validity_of_years(self.now, 1).not_after;
        let (starts, key_id) = (self.now, self.ids.next_uuid());
        let directory = &mut self.azure.directory;
        if let Some(application) = directory.application_by_client_id_mut(secret_client) {
            let text = secret.clone();
            let password = PasswordCredential { key_id, display_name: None, text, starts, expires };
            application.passwords.push(password);
        }
        if let Some(application) = directory.application_by_client_id_mut(certificate_client) {
            let (key_id, certificate) = (self.ids.next_uuid(), der.to_vec());
            let key = KeyCredential { key_id, display_name: None, certificate, starts, expires };
            application.keys.push(key);
        }
    }

    /// Permits the node's identity to read a subscription of its own tenant. Without one, the Azure
    /// CLI cannot sign in with the identity.
    fn add_vault_reader_subscription(&mut self) {
        let plan = self.plan;
        let directory = &self.azure.directory;
        let reader = directory.service_principal_by_client_id(plan.vault_reader_client_id);
        let Some(reader) = reader.map(|reader| reader.object_id) else { return };
        let subscription = if plan.vault.tenant == plan.tenant {
            plan.subscription.clone()
        } else {
            let name = Uuid::new_v5(&Uuid::NAMESPACE_DNS, plan.vault.tenant.as_str().as_bytes());
            let Ok(id) = name.to_string().parse() else { return };
            self.add_subscription(&name.to_string(), "lanyard-platform", &plan.vault.tenant);
            id
        };
        let scope = ArmResourceId::subscription_scope(&subscription);
        let name = self.ids.named_uuid("vault-reader/subscription");
        self.assign_role(name, READER, reader, scope.into());
    }

    /// Adds a user-assigned identity with a federated identity credential of the seeded issuer.
    fn add_federated_identity(&mut self) -> Result<EntraClientId, SeedError> {
        let client_id = EntraClientId::from(self.ids.named_uuid("test-workload/client-id"));
        let resource_id =
            Self::user_assigned_identity_id(&self.platform_resource_group(), "test-workload");
        self.add_user_assigned_identity(&resource_id, &self.plan.tenant, client_id);
        let directory = &mut self.azure.directory;
        if let Some(credentials) = directory.federated_credentials_mut(client_id) {
            credentials.push(FederatedCredential::new("test-clients", ISSUER, SUBJECT, AUDIENCE));
        }
        let keys = BTreeMap::from([(ISSUER_KEY.to_owned(), self.next_rsa_key()?)]);
        self.azure
            .directory
            .issuers
            .insert(ISSUER.to_owned(), TrustedIssuer { keys, ..TrustedIssuer::default() });
        Ok(client_id)
    }

    fn add_test_client_objects(&mut self, key: &RsaKey, der: &[u8]) -> Result<(), SeedError> {
        for (name, text) in
            [(READABLE_SECRET, "for test clients"), (WITHHELD_SECRET, "not for test clients")]
        {
            let plain = SecretContent {
                value: RedactedText::new(text.to_owned()),
                content_type: Some("text/plain".to_owned()),
                key_version: None,
            };
            let (id, attributes) = (self.ids.next_hex32(), StoredObjectAttributes::new(self.now));
            let (host, vaults) = self.test_client_vault()?;
            vaults
                .secrets
                .push_version(&host, name, vault_object_version(&id, attributes, plain))
                .map_err(|DeletedNameConflict| secret_deleted_error(host, name))?;
        }
        for (name, form) in CERTIFICATE_OBJECTS {
            self.add_test_client_certificate(name, form, (key, der))?;
        }
        for (name, curve) in CURVE_KEYS {
            self.add_elliptic_curve_key(name, curve)?;
        }
        Ok(())
    }

    fn add_elliptic_curve_key(
        &mut self,
        name: &str,
        curve: EllipticCurve,
    ) -> Result<(), SeedError> {
        let key = self.ids.generate_ec_key(curve).map_err(SeedError::key_generation_error)?;
        let content = KeyContent { key: key.into(), managed: false, operations: None };
        let (id, attributes) = (self.ids.next_hex32(), StoredObjectAttributes::new(self.now));
        let (host, vaults) = self.test_client_vault()?;
        vaults
            .keys
            .push_version(&host, name, vault_object_version(&id, attributes, content))
            .map_err(|DeletedNameConflict| secret_deleted_error(host, name))
    }

    /// Adds a certificate with its secret and its key, which have the same name in the vault.
    fn add_test_client_certificate(
        &mut self,
        name: &str,
        form: BundleForm,
        (key, der): (&RsaKey, &[u8]),
    ) -> Result<(), SeedError> {
        let missing = SeedError::SeedObjectMissing { what: "certificate" };
        let certificate = DerCertificate::parse(der).ok_or(missing)?;
        let version = NewCertificateVersion {
            id: self.ids.next_hex32(),
            key: key.clone().into(),
            content: CertificateContent {
                chain: vec![certificate],
                leaf: 0,
                form,
                is_exportable: true,
            },
            attributes: StoredObjectAttributes::new(self.now),
            tags: None,
        };
        let (host, vaults) = self.test_client_vault()?;
        store_imported_certificate(version, vaults, &host, name).map_err(|error| match error {
            StoreCertificateError::Name(..) => secret_deleted_error(host, name),
            StoreCertificateError::Bundle(error) => SeedError::Pkcs12(error),
        })
    }

    fn required_test_client_vault_name(&self) -> Result<VaultName, SeedError> {
        self.plan
            .test_client_vault_name()
            .ok_or(SeedError::SeedObjectMissing { what: "name for the test clients' vault" })
    }

    /// Returns the id of the test clients' vault, in the managed resource group.
    fn test_client_vault_id(&self, name: &VaultName) -> ArmResourceId {
        self.managed_resource_group().provider_resource("Microsoft.KeyVault/vaults", name.as_str())
    }

    fn test_client_vault(&mut self) -> Result<(String, &mut VaultStore), SeedError> {
        let host = self.vault_host(&self.required_test_client_vault_name()?);
        let vaults = &mut self.azure.vaults;
        if vaults.vault_at_host(&host).is_none() {
            return Err(SeedError::SeedObjectMissing { what: "vault" });
        }
        Ok((host, vaults))
    }

    /// Grants a test client access to the objects in its vault. It also becomes Owner of the
    /// subscription if `owner` is true, and otherwise Reader of the managed resource group.
    fn grant_test_client_access(
        &mut self,
        client: EntraClientId,
        vault: &ArmResourceId,
        owner: bool,
    ) {
        let Some(object) = self
            .azure
            .directory
            .service_principal_by_client_id(client)
            .map(|known| known.object_id)
        else {
            return;
        };
        let subscription = ArmResourceId::subscription_scope(&self.plan.subscription);
        let (role, scope) = if owner {
            (RoleDefinitionId::OWNER, subscription)
        } else {
            (READER, self.managed_resource_group())
        };
        let mut grants = vec![
            (role, scope),
            (RoleDefinitionId::KEY_VAULT_SECRETS_USER, vault.child("secrets", READABLE_SECRET)),
        ];
        for (name, ..) in CERTIFICATE_OBJECTS {
            let kinds = ["secrets", "certificates", "keys"];
            grants.extend(kinds.map(|kind| (CERTIFICATE_USER, vault.child(kind, name))));
        }
        let curves = CURVE_KEYS
            .iter()
            .map(|(name, ..)| (RoleDefinitionId::KEY_VAULT_CRYPTO_USER, vault.child("keys", name)));
        grants.extend(curves);
        for (role, scope) in grants {
            let name: Uuid = self.ids.next_uuid();
            self.assign_role(name, role, object, scope.into());
        }
    }
}

fn secret_deleted_error(vault: String, secret: &str) -> SeedError {
    SeedError::SecretDeleted { vault, secret: secret.to_owned() }
}

fn vault_object_version<T>(
    id: &str,
    attributes: StoredObjectAttributes,
    content: T,
) -> StoredObjectVersion<T> {
    StoredObjectVersion { id: id.to_owned(), attributes, tags: None, content }
}
