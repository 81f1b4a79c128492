//! The hops of one component, each a call of the crate that owns it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use lanyard_api::{ProviderParameters, SecretProviderClass};
use lanyard_azure::{ArmClient, AuthenticatedClient, AzureCallError};
use lanyard_credential::{ReloadingCertificateCredential, ReloadingCertificateOptions, TokenError};
use lanyard_desired::proof::{ExpectedAuthorization, ProofCall, ProofTarget};
use lanyard_keyvault::{PodCredentials, UnlimitedMemory, VolumePod, encoding};
use lanyard_node::{ProviderError, ProviderRequest, ProviderResponse, PublishError, Urgency};
use lanyard_vocabulary::{Component, Hop};

use crate::azure_environment::AzureEnvironment;
use crate::hop_recorder::{HopFailed, HopOutput, HopRecorder};
use crate::report::ScenarioFailure;
use crate::run_context::RunContext;
use crate::run_directory::OpenVolume;

/// What a component has at the end of its way.
#[derive(Debug)]
pub(crate) struct MountedComponent {
    pub(crate) class: Arc<SecretProviderClass>,
    pub(crate) volumes: Vec<OpenVolume>,
    pub(crate) credential: Option<Arc<ReloadingCertificateCredential>>,
}

pub(crate) type HopResult<T> = Result<HopOutput<T>, ScenarioFailure>;

/// Walks all hops; what was mounted is kept even where a later hop fails.
pub(crate) async fn run_component_hops(
    bed: &RunContext,
    component: Component,
    walk: &mut HopRecorder,
    arrived: &mut Option<MountedComponent>,
) -> Result<(), HopFailed> {
    walk.run_hop(Hop::HostedCluster, async { find_identity(bed, component) }).await?;
    let (class, parameters) =
        walk.run_hop(Hop::SecretProviderClass, read_class(bed, component)).await?;
    walk.run_hop(Hop::Volume, async { check_volume_paths(bed, component) }).await?;
    walk.run_hop(Hop::ImdsToken, request_imds_token(bed, component, &parameters)).await?;
    let filled = walk.run_hop(Hop::VaultRead, read_vault(bed, component, &class)).await?;
    let filling = walk.run_hop(Hop::Decode, async { check_decoded_files(filled) }).await?;
    let volumes =
        walk.run_hop(Hop::File, async { publish_files(bed, component, &filling) }).await?;
    let arrived = arrived.insert(MountedComponent { class, volumes, credential: None });
    let credential =
        walk.run_hop(Hop::Credential, load_credential(bed, component, &arrived.volumes)).await?;
    arrived.credential = Some(Arc::clone(&credential));
    let proofs = bed.azure.proof_calls(component);
    let granted = proofs.map(|proofs| &proofs.granted);
    walk.run_hop(Hop::EntraToken, request_entra_token(bed, &credential, granted)).await?;
    walk.run_hop(Hop::Granted, make_proof_call(&bed.azure, &credential, granted)).await?;
    let refused = proofs.map(|proofs| &proofs.refused);
    walk.run_hop(Hop::Refused, make_proof_call(&bed.azure, &credential, refused)).await
}

fn find_identity(bed: &RunContext, component: Component) -> HopResult<()> {
    let Some(identity) = bed.azure.cluster.identities.get(&component) else {
        let detail = format!("the HostedCluster names no identity at {}", component.field_path());
        return Err(ScenarioFailure::new(detail, "name one, or switch the component off"));
    };
    let detail = format!(
        "secret `{}` in vault `{}`, {}",
        identity.secret_name, bed.azure.cluster.vault.name, identity.encoding
    );
    Ok(HopOutput::new((), detail))
}

async fn read_class(
    bed: &RunContext,
    component: Component,
) -> HopResult<(Arc<SecretProviderClass>, ProviderParameters)> {
    let name = component.definition().secret_provider_class;
    let namespace = &bed.desired.namespace;
    let class = bed
        .classes
        .class(namespace, name)
        .await
        .map_err(|error| ScenarioFailure::of(&error, error.hint()))?;
    let parameters = class.parse_parameters().map_err(|problems| {
        ScenarioFailure::of(&problems, format!("correct the parameters of {namespace}/{name}"))
    })?;
    Ok(HopOutput::new((class, parameters), format!("{namespace}/{name}")))
}

fn check_volume_paths(bed: &RunContext, component: Component) -> HopResult<()> {
    let mut places = Vec::new();
    for consumer in component.consumers() {
        let told = bed.desired.configured_credential_path(component, consumer);
        let provided = bed.desired.mounted_credential_path(component, consumer);
        let (deployment, volume) = (consumer.deployment, consumer.volume);
        match (told, provided) {
            (Some(told), Some(provided)) if told == provided => {
                places.push(format!("{deployment} reads {told}"));
            }
            (told, provided) => {
                let absent = || "nothing".to_owned();
                let detail = format!(
                    "{deployment} is told {}, and its volume `{volume}` provides {}",
                    told.unwrap_or_else(absent),
                    provided.unwrap_or_else(absent)
                );
                return Err(ScenarioFailure::new(
                    detail,
                    "compare the mount path with what is told",
                ));
            }
        }
    }
    Ok(HopOutput::new((), places.join("; ")))
}

async fn request_imds_token(
    bed: &RunContext,
    component: Component,
    parameters: &ProviderParameters,
) -> HopResult<()> {
    let (pod, proofs) = (component_pod(bed, component), PodCredentials::default());
    let authenticated = Box::pin(bed.vaults.authenticate(parameters, &pod, &proofs)).await;
    let expires = authenticated.map_err(|error| {
        let hint = error.hint();
        ScenarioFailure::of(&error, hint.unwrap_or_else(|| "see the cause".to_owned()))
    })?;
    // All components have the same token, which is requested once.
    let detail = format!(
        "one token of managed identity {} for all, valid until {expires}",
        bed.azure.vault_reader_client_id
    );
    Ok(HopOutput::new((), detail))
}

/// The next step of a credential's error, which knows it best.
fn token_hint(error: &azure_core::Error) -> String {
    TokenError::of(error)
        .and_then(TokenError::hint)
        .unwrap_or_else(|| "see the logs with --log lanyard_credential=debug".to_owned())
}

/// What the provider returned: the vault was read, and what follows may have failed.
pub(crate) type ProviderFetchResult = Result<ProviderResponse, ProviderError>;

async fn read_vault(
    bed: &RunContext,
    component: Component,
    class: &SecretProviderClass,
) -> HopResult<ProviderFetchResult> {
    let vault = &bed.azure.cluster.vault.name;
    match fetch_from_provider(bed, component, class, Urgency::Mount).await {
        Ok(filling) => {
            let versions = filling.versions.iter();
            let versions: Vec<_> =
                versions.map(|it| format!("{} version `{}`", it.id, it.version)).collect();
            let detail = format!("vault `{vault}`: {}", versions.join(", "));
            Ok(HopOutput::new(Ok(filling), detail))
        }
        Err(refusal) if refusal.code.hop() > Hop::VaultRead => {
            Ok(HopOutput::new(Err(refusal), format!("vault `{vault}`")))
        }
        Err(refusal) => Err(provider_failure(refusal)),
    }
}

/// Asks the provider of the node for the files of a component.
pub(crate) async fn fetch_from_provider(
    bed: &RunContext,
    component: Component,
    class: &SecretProviderClass,
    urgency: Urgency,
) -> ProviderFetchResult {
    let request = ProviderRequest {
        class,
        pod: &component_pod(bed, component),
        attributes: &BTreeMap::new(),
        proofs: &PodCredentials::default(),
        target: "",
        urgency,
        mounted: &[],
        memory: &UnlimitedMemory,
    };
    bed.provider.fetch(&request).await
}

/// The pod for which a component's class is read. The vault reader is the node's managed identity,
/// so the name is for logs only.
fn component_pod(bed: &RunContext, component: Component) -> VolumePod {
    VolumePod {
        namespace: bed.desired.namespace.clone(),
        name: component.name().to_owned(),
        uid: String::new(),
        service_account: String::new(),
    }
}

/// A refusal of the provider, as the report shows it.
fn provider_failure(refusal: ProviderError) -> ScenarioFailure {
    ScenarioFailure::new(refusal.message, refusal.hint)
}

pub(crate) fn check_decoded_files(filled: ProviderFetchResult) -> HopResult<ProviderResponse> {
    let filling = filled.map_err(provider_failure)?;
    for file in &filling.files {
        if let Some(seems) = encoding::suspected_encoding(file.content.expose()) {
            let detail = format!("`{}` decodes to text that still is {seems}", file.path);
            let hint = format!("declare objectEncoding {seems}, or store the value decoded");
            return Err(ScenarioFailure::new(detail, hint));
        }
    }
    let files = filling.files.iter();
    let files: Vec<_> =
        files.map(|file| format!("{} ({} bytes)", file.path, file.content.len())).collect();
    Ok(HopOutput::new(filling, files.join(", ")))
}

fn publish_files(
    bed: &RunContext,
    component: Component,
    filling: &ProviderResponse,
) -> HopResult<Vec<OpenVolume>> {
    let hint =
        |error: &PublishError| error.hint().unwrap_or("check the directory given with --directory");
    let mut volumes = Vec::new();
    for consumer in component.consumers() {
        let opened = bed.directory.open_volume(consumer);
        volumes.push(opened.map_err(|error| ScenarioFailure::of(&error, hint(&error)))?);
    }
    for volume in &mut volumes {
        publish_volume(volume, filling)?;
    }
    let places: Vec<_> = volumes.iter().map(ToString::to_string).collect();
    Ok(HopOutput::new(volumes, places.join("; ")))
}

/// Makes the files of the provider the content of a volume.
pub(crate) fn publish_volume(
    open: &mut OpenVolume,
    filling: &ProviderResponse,
) -> Result<(), ScenarioFailure> {
    let published = open.volume.publish(&filling.file_entries(None)).map(drop);
    published.map_err(|error| {
        ScenarioFailure::of(&error, error.hint().unwrap_or("run again with --log debug"))
    })
}

/// The file that a component's first consumer reads.
pub(crate) fn credential_path(
    bed: &RunContext,
    component: Component,
    volumes: &[OpenVolume],
) -> Option<PathBuf> {
    let identity = bed.azure.cluster.identities.get(&component)?;
    Some(volumes.first()?.volume.dir().join(identity.secret_name.as_str()))
}

async fn load_credential(
    bed: &RunContext,
    component: Component,
    volumes: &[OpenVolume],
) -> HopResult<Arc<ReloadingCertificateCredential>> {
    let Some(path) = credential_path(bed, component, volumes) else {
        return Err(ScenarioFailure::new("there is no mounted file", "see the hop `file`"));
    };
    let mut options = ReloadingCertificateOptions::default();
    options.transport = bed.azure.token_transport.clone();
    let credential = ReloadingCertificateCredential::open(&path, options)
        .await
        .map_err(|error| ScenarioFailure::of(&error, error.hint()))?;
    let generation = credential.generation();
    let bundle = generation.bundle();
    let detail = format!(
        "client {}, {}, expires {}",
        generation.client_id(),
        bundle.format(),
        generation.expires_at()
    );
    Ok(HopOutput::new(credential, detail))
}

fn proof_scope(azure: &AzureEnvironment, proof: Option<&ProofCall>) -> String {
    match proof.map(|proof| &proof.target) {
        Some(ProofTarget::Vault { .. }) => azure.vault_scope(),
        _ => ArmClient::scope(azure.endpoints),
    }
}

async fn request_entra_token(
    bed: &RunContext,
    credential: &Arc<ReloadingCertificateCredential>,
    proof: Option<&ProofCall>,
) -> HopResult<()> {
    let scope = proof_scope(&bed.azure, proof);
    let token = credential
        .get_token(&[&scope], None)
        .await
        .map_err(|error| ScenarioFailure::of(&error, token_hint(&error)))?;
    let expires = crate::time::rfc3339(token.expires_on);
    Ok(HopOutput::new((), format!("{scope}, valid until {expires}")))
}

/// Makes a proof call, and compares what came back with what must.
pub(crate) async fn make_proof_call(
    azure: &AzureEnvironment,
    credential: &Arc<ReloadingCertificateCredential>,
    proof: Option<&ProofCall>,
) -> HopResult<()> {
    let Some(proof) = proof else {
        let hint = "give the HostedCluster what the call needs, such as a base domain";
        return Err(ScenarioFailure::new("there is no call that would prove the role", hint));
    };
    let tokens: Arc<dyn TokenCredential> = Arc::<ReloadingCertificateCredential>::clone(credential);
    let text = proof.url(azure.endpoints);
    let result = match text.parse() {
        Ok(url) => {
            let scope = proof_scope(azure, Some(proof));
            AuthenticatedClient::new(scope, tokens, &azure.transport).fetch(&url).await
        }
        Err(_) => Err(AzureCallError::InvalidTarget { target: text }),
    };
    evaluate_proof_call(proof, result)
}

fn evaluate_proof_call(
    proof: &ProofCall,
    result: Result<lanyard_azure::AzureResponse, AzureCallError>,
) -> HopResult<()> {
    let (status, code) = match &result {
        Ok(reply) => (reply.status, ""),
        Err(error) => (error.status().unwrap_or_default(), error.code().unwrap_or_default()),
    };
    let permission = proof.permission;
    if proof.is_met_by(status, code) {
        return Ok(HopOutput::new(
            (),
            match proof.expected {
                ExpectedAuthorization::Granted => {
                    format!("{status} {code} with {permission}").replace("  ", " ")
                }
                ExpectedAuthorization::Refused => format!("{status} {code} without {permission}"),
            },
        ));
    }
    Err(match result {
        Ok(_) => {
            let detail = format!("{status} although the role has no {permission}");
            ScenarioFailure::new(detail, "look for another role assignment of the identity")
        }
        Err(error) => ScenarioFailure::of(&error, error.hint()),
    })
}

impl std::fmt::Display for OpenVolume {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.is_tmpfs { "tmpfs" } else { "plain directory" };
        write!(formatter, "{} ({kind})", self.volume.dir().display())
    }
}
