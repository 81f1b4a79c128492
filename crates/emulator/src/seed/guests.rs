//! Principals and a vault for other people's clients: the ways to sign in that no component uses,
//! and a secret, a certificate and a key that they may read.
//!
//! A guest sees the subscription and its vault with one identity, which has one tenant: that of
//! the subscription. The vault with the credentials may trust another one, so guests have a vault
//! of their own.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use lanyard_vocabulary::{ArmResourceId, ClientId, RoleDefinitionId, VaultName};
use serde_json::json;
use uuid::{Uuid, uuid};

use super::certificate::{Leaf, self_signed};
use super::tenants::years;
use super::{Bundle, Guests, Seed, SeedError, bundle};
use crate::call::Ids;
use crate::directory::{
    ClientSecret, FederatedCredential, KeyCredential, Principal, PrincipalKind, TrustedIssuer,
};
use crate::keys::{KeyError, RsaKey, SecretText};
use crate::services::keyvault::{
    Attributes, CertificateContent, CurvePoint, KeyContent, Recoverable, SecretContent, Vault,
    VaultKey, Version,
};
use crate::world::World;

/// The keys that guests need: one certificate, one issuer.
pub(super) const KEYS: usize = 2;

const OWNER: RoleDefinitionId = RoleDefinitionId(uuid!("8e3af657-a8ff-443c-a75c-2fe8c4bcb635"));
const READER: RoleDefinitionId = RoleDefinitionId(uuid!("acdd72a7-3385-48ef-bd42-f606fba81ae7"));
const CRYPTO_USER: RoleDefinitionId =
    RoleDefinitionId(uuid!("12338af0-0e69-4776-bea7-57ae8d297424"));
const CERTIFICATE_USER: RoleDefinitionId =
    RoleDefinitionId(uuid!("db79e9a7-68ee-4b58-9aeb-b90e7c24fcba"));

/// A name that can never be registered (RFC 6761): nobody else's tokens are trusted by it.
const ISSUER: &str = "https://issuer.lanyard.test/guests";
const ISSUER_KEY: &str = "guests-1";
const SUBJECT: &str = "system:serviceaccount:guests:workload";
const AUDIENCE: &str = "api://AzureADTokenExchange";
const SECRET: &str = "guest-secret";
/// A secret beside it that they may not read.
const WITHHELD: &str = "withheld-secret";
/// The common name of the guests' certificate.
const SUBJECT_NAME: &str = "guest-certificate";
/// The same certificate in the two forms that a vault has for its secret.
const CERTIFICATES: [(&str, &str, Bundle); 2] = [
    ("guest-certificate", "application/x-pkcs12", Bundle::LegacyPkcs12),
    ("guest-certificate-pem", "application/x-pem-file", Bundle::Pem),
];

/// Keys of the curves that vaults know and providers read.
const CURVES: [(&str, &str, &rcgen::SignatureAlgorithm); 3] = [
    ("guest-key-p256", "P-256", &rcgen::PKCS_ECDSA_P256_SHA256),
    ("guest-key-p384", "P-384", &rcgen::PKCS_ECDSA_P384_SHA384),
    ("guest-key-p521", "P-521", &rcgen::PKCS_ECDSA_P521_SHA512),
];

/// Why no subject token was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MintError {
    /// The world was seeded without guests, so it has no issuer of subject tokens.
    #[error("the world has no issuer of subject tokens")]
    NoIssuer,
    /// The issuer's key could not sign.
    #[error("no subject token could be signed")]
    Signing(#[source] KeyError),
}

/// A subject token of the seeded issuer, valid for ten minutes, as a cluster would project it.
pub(crate) fn mint_federated_token(
    world: &World,
    subject: &str,
    audience: &str,
    ids: &mut Ids,
    now: Timestamp,
) -> Result<SecretText, MintError> {
    let guests = world.roster.guests.as_ref().ok_or(MintError::NoIssuer)?;
    let key = world
        .directory
        .issuers
        .get(&guests.issuer)
        .and_then(|issuer| issuer.keys.get(&guests.key_id))
        .ok_or(MintError::NoIssuer)?;
    let header = json!({ "alg": "RS256", "kid": guests.key_id, "typ": "JWT" });
    let issued = now.as_second();
    let claims = json!({
        "iss": guests.issuer,
        "sub": subject,
        "aud": [audience],
        "iat": issued,
        "nbf": issued,
        "exp": issued + 600,
        "jti": ids.uuid(),
    });
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature = key.sign_rs256(signed.as_bytes()).map_err(MintError::Signing)?;
    Ok(SecretText::new(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

impl Seed<'_> {
    pub(super) fn add_guests(&mut self) -> Result<(), SeedError> {
        let secret_client = self.add_application("guest-secret");
        let secret = SecretText::new(format!("{}{}", self.ids.hex32(), self.ids.hex32()));
        let certificate_client = self.add_application("guest-certificate");
        let key = self.keys.take()?;
        let der = self_signed(&Leaf {
            subject: SUBJECT_NAME,
            serial: self.ids.uuid(),
            validity: years(self.now, 1),
            key: &key,
        })?;
        let pem = bundle::bundle(Bundle::Pem, &key, &[&der])?;
        let certificate = SecretText::new(String::from_utf8_lossy(&pem).into_owned());
        self.register(secret_client, &secret, certificate_client, &der);
        let federated_client = self.add_workload()?;
        let name = self.guest_vault_name()?;
        let (vault, vault_host) = (self.guest_vault_id(&name), self.vault_host(&name));
        self.add_vault(vault.clone(), &name, &self.plan.tenant);
        self.add_guest_objects(&key, &der)?;
        for client in [secret_client, certificate_client, federated_client] {
            self.let_in(client, &vault, client == secret_client);
        }
        self.world.roster.guests = Some(Guests {
            tenant: self.plan.tenant.clone(),
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
            secret_name: SECRET.to_owned(),
            withheld_secret_name: WITHHELD.to_owned(),
        });
        Ok(())
    }

    fn add_application(&mut self, name: &str) -> ClientId {
        let client_id = ClientId::from(self.ids.uuid());
        self.world.directory.principals.push(Principal {
            object_id: self.ids.uuid(),
            client_id,
            tenant: self.plan.tenant.clone(),
            display_name: name.to_owned(),
            enabled: true,
            kind: PrincipalKind::Application { application_object_id: self.ids.uuid() },
            secrets: Vec::new(),
            certificates: Vec::new(),
            subject_name_issuer: None,
            federated_credentials: Vec::new(),
        });
        client_id
    }

    fn register(
        &mut self,
        secret_client: ClientId,
        secret: &SecretText,
        certificate_client: ClientId,
        der: &[u8],
    ) {
        let expires = years(self.now, 1).not_after;
        if let Some(application) = self.world.directory.by_client_mut(secret_client) {
            application.secrets.push(ClientSecret { text: secret.clone(), expires });
        }
        if let Some(application) = self.world.directory.by_client_mut(certificate_client) {
            application.certificates.push(KeyCredential { certificate: der.to_vec(), expires });
        }
    }

    /// A user-assigned identity that tokens of the seeded issuer may stand for.
    fn add_workload(&mut self) -> Result<ClientId, SeedError> {
        let client_id = ClientId::from(self.ids.uuid());
        let resource_id = Self::identity_id(&self.platform_group(), "guest-workload");
        self.add_identity(&resource_id, &self.plan.tenant, client_id);
        if let Some(principal) = self.world.directory.by_client_mut(client_id) {
            principal.federated_credentials.push(FederatedCredential {
                name: "guests".to_owned(),
                issuer: ISSUER.to_owned(),
                subject: SUBJECT.to_owned(),
                audiences: vec![AUDIENCE.to_owned()],
            });
        }
        let keys = BTreeMap::from([(ISSUER_KEY.to_owned(), self.keys.take()?)]);
        self.world
            .directory
            .issuers
            .insert(ISSUER.to_owned(), TrustedIssuer { keys, ..TrustedIssuer::default() });
        Ok(client_id)
    }

    fn add_guest_objects(&mut self, key: &RsaKey, der: &[u8]) -> Result<(), SeedError> {
        for (name, text) in [(SECRET, "for guests"), (WITHHELD, "not for guests")] {
            let plain = SecretContent {
                value: SecretText::new(text.to_owned()),
                content_type: Some("text/plain".to_owned()),
                key_version: None,
            };
            let (id, attributes) = (self.ids.hex32(), Attributes::new(self.now));
            let (host, vault) = self.guest_vault()?;
            vault
                .secrets
                .push(name, version(&id, attributes, plain))
                .map_err(|Recoverable| deleted(host, name))?;
        }
        for (name, content_type, form) in CERTIFICATES {
            self.add_guest_certificate(name, content_type, form, (key, der))?;
        }
        for (name, curve, algorithm) in CURVES {
            self.add_guest_curve(name, curve, algorithm)?;
        }
        Ok(())
    }

    /// A key of a curve, of which the vault shows the public part.
    fn add_guest_curve(
        &mut self,
        name: &str,
        curve: &str,
        algorithm: &'static rcgen::SignatureAlgorithm,
    ) -> Result<(), SeedError> {
        let pair = rcgen::KeyPair::generate_for(algorithm).map_err(SeedError::Certificate)?;
        // An uncompressed point: a four, and the coordinates.
        let point = pair.public_key_raw().get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        let point = CurvePoint {
            crv: curve.to_owned(),
            x: URL_SAFE_NO_PAD.encode(x),
            y: URL_SAFE_NO_PAD.encode(y),
        };
        let content = KeyContent { key: VaultKey::Curve(point), managed: false, operations: None };
        let (id, attributes) = (self.ids.hex32(), Attributes::new(self.now));
        let (host, vault) = self.guest_vault()?;
        vault
            .keys
            .push(name, version(&id, attributes, content))
            .map_err(|Recoverable| deleted(host, name))
    }

    /// A certificate with its secret and its key, as the vault keeps them under one name.
    fn add_guest_certificate(
        &mut self,
        name: &str,
        content_type: &str,
        form: Bundle,
        (key, der): (&RsaKey, &[u8]),
    ) -> Result<(), SeedError> {
        let bundle = bundle::bundle(form, key, &[der])?;
        // The vault hands out PEM as it is and PKCS#12 in base64.
        let value = match form {
            Bundle::Pem => String::from_utf8_lossy(&bundle).into_owned(),
            Bundle::LegacyPkcs12 | Bundle::ModernPkcs12 => STANDARD.encode(&bundle),
        };
        let validity = years(self.now, 1);
        let mut attributes = Attributes::new(self.now);
        attributes.not_before = Some(validity.not_before);
        attributes.expires = Some(validity.not_after);
        let id = self.ids.hex32();
        let secret = SecretContent {
            value: SecretText::new(value),
            content_type: Some(content_type.to_owned()),
            key_version: Some(id.clone()),
        };
        let certificate = CertificateContent {
            der: der.to_vec(),
            subject: format!("CN={SUBJECT_NAME}"),
            secret_type: content_type.to_owned(),
        };
        let key = KeyContent { key: key.clone().into(), managed: true, operations: None };
        let (host, vault) = self.guest_vault()?;
        vault
            .secrets
            .push(name, version(&id, attributes, secret))
            .and_then(|()| vault.keys.push(name, version(&id, attributes, key)))
            .and_then(|()| vault.certificates.push(name, version(&id, attributes, certificate)))
            .map_err(|Recoverable| deleted(host, name))
    }

    fn guest_vault_name(&self) -> Result<VaultName, SeedError> {
        self.plan.guest_vault().ok_or(SeedError::Gone { what: "name for the guests' vault" })
    }

    /// The vault of the guests is a resource of the managed group, which they see.
    fn guest_vault_id(&self, name: &VaultName) -> ArmResourceId {
        self.managed_group().provider("Microsoft.KeyVault/vaults", name.as_str())
    }

    fn guest_vault(&mut self) -> Result<(String, &mut Vault), SeedError> {
        let host = self.vault_host(&self.guest_vault_name()?);
        let vault = self.world.vaults.at_host_mut(&host);
        vault.map(|vault| (host, vault)).ok_or(SeedError::Gone { what: "vault" })
    }

    /// Gives a guest the vault objects of the guests and the sight of the managed group; the
    /// owner gets the subscription instead of the sight.
    fn let_in(&mut self, client: ClientId, vault: &ArmResourceId, owner: bool) {
        let Some(object) = self.world.directory.by_client(client).map(|known| known.object_id)
        else {
            return;
        };
        let subscription = ArmResourceId::subscription_scope(&self.plan.subscription);
        let (role, scope) =
            if owner { (OWNER, subscription) } else { (READER, self.managed_group()) };
        let mut grants = vec![
            (role, scope),
            (RoleDefinitionId::KEY_VAULT_SECRETS_USER, vault.child("secrets", SECRET)),
        ];
        for (name, ..) in CERTIFICATES {
            let kinds = ["secrets", "certificates", "keys"];
            grants.extend(kinds.map(|kind| (CERTIFICATE_USER, vault.child(kind, name))));
        }
        let curves = CURVES.iter().map(|(name, ..)| (CRYPTO_USER, vault.child("keys", name)));
        grants.extend(curves);
        for (role, scope) in grants {
            let name: Uuid = self.ids.uuid();
            self.assign(name, role, object, scope.into());
        }
    }
}

fn deleted(vault: String, secret: &str) -> SeedError {
    SeedError::SecretDeleted { vault, secret: secret.to_owned() }
}

fn version<T>(id: &str, attributes: Attributes, content: T) -> Version<T> {
    Version { id: id.to_owned(), attributes, tags: BTreeMap::new(), content }
}
