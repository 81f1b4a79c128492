//! The hops of one component. Each hop calls the crate that implements it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use lanyard_api::{ProviderParameters, SecretProviderClass};
use lanyard_azure::{ArmClient, AuthenticatedClient, AzureCallError};
use lanyard_clock::ErrorHint as _;
use lanyard_credential::{ReloadingCertificateCredential, ReloadingCertificateOptions, TokenError};
use lanyard_desired::proof::{ExpectedAuthorization, ProofCall, ProofTarget};
use lanyard_keyvault::{PodCredentials, UnlimitedMemory, VolumePod, encoding};
use lanyard_provider::{ProviderError, ProviderRequest, ProviderResponse, Urgency};
use lanyard_vocabulary::{Component, Hop};
use lanyard_volume::PublishError;

use crate::azure_environment::AzureEnvironment;
use crate::hop_recorder::{HopFailed, HopOutput, HopRecorder};
use crate::report::StepFailure;
use crate::run_context::RunContext;
use crate::run_directory::OpenVolume;

/// The class, open volumes and credential of a component after its hops ran.
#[derive(Debug)]
pub(crate) struct MountedComponent {
    pub(crate) class: Arc<SecretProviderClass>,
    pub(crate) volumes: Vec<OpenVolume>,
    pub(crate) credential: Option<Arc<ReloadingCertificateCredential>>,
}

/// The output of a hop (a value and a line for the report), or why the hop failed. [`HopRecorder`] adds the
/// duration.
pub(crate) type HopResult<T> = Result<HopOutput<T>, StepFailure>;

/// Runs all hops of a component, up to the first that fails. `mounted` receives the volumes as soon as they are
/// mounted, so that the caller has them even if a later hop fails.
pub(crate) async fn run_component_hops(
    context: &RunContext,
    component: Component,
    recorder: &mut HopRecorder,
    mounted: &mut Option<MountedComponent>,
) -> Result<(), HopFailed> {
    recorder.run_hop(Hop::HostedCluster, async { find_identity(context, component) }).await?;
    let (class, parameters) =
        recorder.run_hop(Hop::SecretProviderClass, read_class(context, component)).await?;
    recorder.run_hop(Hop::Volume, async { check_volume_paths(context, component) }).await?;
    recorder.run_hop(Hop::ImdsToken, request_imds_token(context, component, &parameters)).await?;
    let fetched =
        recorder.run_hop(Hop::VaultRead, run_vault_read_hop(context, component, &class)).await?;
    let response = recorder.run_hop(Hop::Decode, async { check_decoded_files(fetched) }).await?;
    let volumes =
        recorder.run_hop(Hop::File, async { publish_files(context, component, &response) }).await?;
    let mounted = mounted.insert(MountedComponent { class, volumes, credential: None });
    let credential = recorder
        .run_hop(Hop::Credential, load_credential(context, component, &mounted.volumes))
        .await?;
    mounted.credential = Some(Arc::clone(&credential));
    let pod_credentials = context.azure.proof_calls(component);
    let granted = pod_credentials.map(|pod_credentials| &pod_credentials.granted);
    recorder.run_hop(Hop::EntraToken, request_entra_token(context, &credential, granted)).await?;
    recorder.run_hop(Hop::Granted, make_proof_call(&context.azure, &credential, granted)).await?;
    let refused = pod_credentials.map(|pod_credentials| &pod_credentials.refused);
    recorder.run_hop(Hop::Refused, make_proof_call(&context.azure, &credential, refused)).await
}

/// The hop `hostedcluster`: finds the identity of the component in the HostedCluster.
fn find_identity(context: &RunContext, component: Component) -> HopResult<()> {
    let Some(identity) = context.azure.cluster.identities.get(&component) else {
        let detail = format!("the HostedCluster names no identity at {}", component.field_path());
        return Err(StepFailure::new(detail, "name one, or switch the component off"));
    };
    let detail = format!(
        "secret `{}` in vault `{}`, {}",
        identity.secret_name, context.azure.cluster.vault.name, identity.encoding
    );
    Ok(HopOutput::new((), detail))
}

/// The hop `spc`: reads the class of the component and parses its parameters.
async fn read_class(
    context: &RunContext,
    component: Component,
) -> HopResult<(Arc<SecretProviderClass>, ProviderParameters)> {
    let name = component.definition().secret_provider_class;
    let namespace = &context.desired.namespace;
    let class = context
        .classes
        .class(namespace, name)
        .await
        .map_err(|error| StepFailure::of(&error, error.hint().unwrap_or_default()))?;
    let parameters = class.parse_parameters().map_err(|problems| {
        StepFailure::of(&problems, format!("correct the parameters of {namespace}/{name}"))
    })?;
    Ok(HopOutput::new((class, parameters), format!("{namespace}/{name}")))
}

/// The hop `volume`: compares, for each consumer, the path that it is configured to read with the path that
/// its volume provides.
fn check_volume_paths(context: &RunContext, component: Component) -> HopResult<()> {
    let mut descriptions = Vec::new();
    for consumer in component.consumers() {
        let configured = context.desired.configured_credential_path(component, consumer);
        let provided = context.desired.mounted_credential_path(component, consumer);
        let (deployment, volume) = (consumer.deployment, consumer.volume);
        match (configured, provided) {
            (Some(configured), Some(provided)) if configured == provided => {
                descriptions.push(format!("{deployment} reads {configured}"));
            }
            (configured, provided) => {
                let absent = || "nothing".to_owned();
                let detail = format!(
                    "{deployment} is configured to read {}, but its volume `{volume}` provides {}",
                    configured.unwrap_or_else(absent),
                    provided.unwrap_or_else(absent)
                );
                return Err(StepFailure::new(
                    detail,
                    "compare the mount path with the configured path",
                ));
            }
        }
    }
    Ok(HopOutput::new((), descriptions.join("; ")))
}

/// The hop `imds-token`: requests the token for the vault with the managed identity of the node.
async fn request_imds_token(
    context: &RunContext,
    component: Component,
    parameters: &ProviderParameters,
) -> HopResult<()> {
    let (pod, pod_credentials) = (component_pod(context, component), PodCredentials::default());
    let authenticated =
        Box::pin(context.vaults.authenticate(parameters, &pod, &pod_credentials)).await;
    let expires = authenticated.map_err(|error| {
        let hint = error.hint();
        StepFailure::of(&error, hint.unwrap_or("see the cause".into()))
    })?;
    // All components share one token, which is requested once.
    let detail = format!(
        "one token of managed identity {} for all, valid until {expires}",
        context.azure.vault_reader_client_id
    );
    Ok(HopOutput::new((), detail))
}

/// The hint of a credential error, or a generic hint if the error has none.
pub(crate) fn token_hint(error: &azure_core::Error) -> Cow<'static, str> {
    TokenError::of(error)
        .and_then(TokenError::hint)
        .unwrap_or("see the logs with --log lanyard_credential=debug".into())
}

/// The files of a component, or the provider's error. The error's code names the hop that failed, which may
/// be a later one than the vault read.
pub(crate) type ProviderFetchResult = Result<ProviderResponse, ProviderError>;

/// The hop `vault-read`: reads the objects of the class through the node's provider. Passes if the vault was
/// read, even if the provider failed later; the output then contains that error, which the next hop reports.
async fn run_vault_read_hop(
    context: &RunContext,
    component: Component,
    class: &SecretProviderClass,
) -> HopResult<ProviderFetchResult> {
    let vault = &context.azure.cluster.vault.name;
    match fetch_from_provider(context, component, class, Urgency::Mount).await {
        Ok(response) => {
            let versions = response.versions.iter();
            let versions: Vec<_> =
                versions.map(|it| format!("{} version `{}`", it.id, it.version)).collect();
            let detail = format!("vault `{vault}`: {}", versions.join(", "));
            Ok(HopOutput::new(Ok(response), detail))
        }
        Err(error) if error.code.hop() > Hop::VaultRead => {
            Ok(HopOutput::new(Err(error), format!("vault `{vault}`")))
        }
        Err(error) => Err(provider_failure(error)),
    }
}

/// Fetches the files of a component from the node's provider.
pub(crate) async fn fetch_from_provider(
    context: &RunContext,
    component: Component,
    class: &SecretProviderClass,
    urgency: Urgency,
) -> ProviderFetchResult {
    let request = ProviderRequest {
        class,
        pod: &component_pod(context, component),
        attributes: &BTreeMap::new(),
        pod_credentials: &PodCredentials::default(),
        target: "",
        urgency,
        mounted: &[],
        memory: &UnlimitedMemory,
    };
    context.provider.fetch(&request).await
}

/// The pod on whose behalf a component's class is read. The vault reader is the managed identity of the node,
/// so the pod name appears only in logs.
fn component_pod(context: &RunContext, component: Component) -> VolumePod {
    VolumePod {
        namespace: context.desired.namespace.clone(),
        name: component.name().to_owned(),
        uid: String::new(),
        service_account: String::new(),
    }
}

/// Converts a provider error to a failure with the provider's hint.
fn provider_failure(error: ProviderError) -> StepFailure {
    StepFailure::new(error.message, error.hint)
}

/// The hop `decode`: fails with the provider's error, or if a decoded file is text that is still encoded.
pub(crate) fn check_decoded_files(fetched: ProviderFetchResult) -> HopResult<ProviderResponse> {
    let response = fetched.map_err(provider_failure)?;
    for file in &response.files {
        if let Some(encoding_name) = encoding::suspected_encoding(file.content.expose()) {
            let detail =
                format!("`{}` decodes to text that is still encoded as {encoding_name}", file.path);
            let hint =
                format!("declare objectEncoding {encoding_name}, or store the decoded value");
            return Err(StepFailure::new(detail, hint));
        }
    }
    let files = response.files.iter();
    let files: Vec<_> =
        files.map(|file| format!("{} ({} bytes)", file.path, file.content.len())).collect();
    Ok(HopOutput::new(response, files.join(", ")))
}

/// The hop `file`: opens a volume for each consumer, and publishes the files into all of them.
fn publish_files(
    context: &RunContext,
    component: Component,
    response: &ProviderResponse,
) -> HopResult<Vec<OpenVolume>> {
    let hint = |error: &PublishError| {
        error.hint().unwrap_or("check the directory given with --directory".into())
    };
    let mut volumes = Vec::new();
    for consumer in component.consumers() {
        let opened = context.directory.open_volume(consumer);
        volumes.push(opened.map_err(|error| StepFailure::of(&error, hint(&error)))?);
    }
    for volume in &mut volumes {
        publish_volume(volume, response)?;
    }
    let descriptions: Vec<_> = volumes.iter().map(ToString::to_string).collect();
    Ok(HopOutput::new(volumes, descriptions.join("; ")))
}

/// Publishes the provider's files into a volume.
pub(crate) fn publish_volume(
    open: &mut OpenVolume,
    response: &ProviderResponse,
) -> Result<(), StepFailure> {
    let published = open.volume.publish(&response.file_entries(None)).map(drop);
    published.map_err(|error| {
        StepFailure::of(&error, error.hint().unwrap_or("run again with --log debug".into()))
    })
}

/// The path of the file that a component's first consumer reads.
pub(crate) fn credential_path(
    context: &RunContext,
    component: Component,
    volumes: &[OpenVolume],
) -> Option<PathBuf> {
    let identity = context.azure.cluster.identities.get(&component)?;
    Some(volumes.first()?.volume.dir().join(identity.secret_name.as_str()))
}

/// The hop `credential`: loads the credential from the mounted file.
async fn load_credential(
    context: &RunContext,
    component: Component,
    volumes: &[OpenVolume],
) -> HopResult<Arc<ReloadingCertificateCredential>> {
    let Some(path) = credential_path(context, component, volumes) else {
        return Err(StepFailure::new("there is no mounted file", "see the hop `file`"));
    };
    let mut options = ReloadingCertificateOptions::default();
    options.transport = context.azure.token_transport.clone();
    let credential = ReloadingCertificateCredential::open(&path, options)
        .await
        .map_err(|error| StepFailure::of(&error, error.hint().unwrap_or_default()))?;
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

/// The token scope of a proof call: the vault's if it calls a vault, otherwise ARM's.
fn proof_scope(azure: &AzureEnvironment, proof: Option<&ProofCall>) -> String {
    match proof.map(|proof| &proof.target) {
        Some(ProofTarget::Vault { .. }) => azure.vault_scope(),
        _ => ArmClient::scope(azure.endpoints),
    }
}

/// The scope of the token for the call that a component's role grants.
pub(crate) fn token_scope(context: &RunContext, component: Component) -> String {
    let calls = context.azure.proof_calls(component);
    proof_scope(&context.azure, calls.map(|calls| &calls.granted))
}

/// The hop `entra-token`: requests a token for the proof call with the mounted credential.
async fn request_entra_token(
    context: &RunContext,
    credential: &Arc<ReloadingCertificateCredential>,
    proof: Option<&ProofCall>,
) -> HopResult<()> {
    let scope = proof_scope(&context.azure, proof);
    let token = credential
        .get_token(&[&scope], None)
        .await
        .map_err(|error| StepFailure::of(&error, token_hint(&error)))?;
    let expires = crate::time::rfc3339(token.expires_on);
    Ok(HopOutput::new((), format!("{scope}, valid until {expires}")))
}

/// The hops `granted` and `refused`: makes a proof call and compares the response with the expected one.
pub(crate) async fn make_proof_call(
    azure: &AzureEnvironment,
    credential: &Arc<ReloadingCertificateCredential>,
    proof: Option<&ProofCall>,
) -> HopResult<()> {
    let Some(proof) = proof else {
        let hint = "set the fields of the HostedCluster that the call needs, such as a base domain";
        return Err(StepFailure::new("there is no call that would prove the role", hint));
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

/// Passes if the result of a proof call is the expected one, access granted or refused.
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
            StepFailure::new(detail, "look for another role assignment of the identity")
        }
        Err(error) => StepFailure::of(&error, error.hint().unwrap_or_default()),
    })
}

impl std::fmt::Display for OpenVolume {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.is_tmpfs { "tmpfs" } else { "plain directory" };
        write!(formatter, "{} ({kind})", self.volume.dir().display())
    }
}
