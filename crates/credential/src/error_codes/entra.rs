//! The error codes of the token endpoint of Entra ID.

use lanyard_clock::{ErrorCodeGroup, ErrorCodeTable};

use super::{Row, THROTTLED};
use lanyard_clock::RetryClass::{Denied, Invalid, Transient};

/// The error codes of Entra ID's token endpoint: the AADSTS codes, and the words of OAuth 2.0 for replies without
/// such a code.
pub static ENTRA: ErrorCodeTable = ErrorCodeTable {
    service: "Entra ID",
    groups: &[
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/entra/identity-platform/reference-error-codes",
            rows: CLIENT_ROWS,
        },
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations",
            rows: FEDERATION_ROWS,
        },
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/entra/identity-platform/v2-oauth2-auth-code-flow#error-codes-for-token-endpoint-errors",
            rows: USER_ROWS,
        },
        ErrorCodeGroup {
            source: "https://www.rfc-editor.org/rfc/rfc6749#section-5.2",
            rows: OAUTH_ROWS,
        },
    ],
};

/// The codes of requests, tenants, applications and their credentials.
const CLIENT_ROWS: &[Row] = &[
    Row::new(
        &["AADSTS700027"],
        Denied,
        "The application does not have the certificate that signed the assertion, or the signature is wrong.",
        "compare the thumbprint in the message with the certificates of the application: Entra does not know the \
         certificate's key; an application that trusts subject and issuer needs the certificate chain (x5c)",
    ),
    Row::new(
        &["AADSTS700030"],
        Denied,
        "The application trusts a subject and an issuer, and the certificate has others.",
        "compare subject and issuer of the certificate with those that the application trusts, and begin the chain \
         (x5c) with the certificate of the key",
    ),
    Row::new(
        &["AADSTS50013"],
        Denied,
        "Entra ID does not accept the signature of the token in the request, or its time range.",
        "request a new token, and check the issuer's signing keys and this host's clock",
    ),
    Row::new(
        &["AADSTS700024"],
        Denied,
        "The assertion is outside its time range.",
        "check this host's clock, and the age of the service account token where one is used",
    ),
    Row::new(
        &["AADSTS70023"],
        Denied,
        "The federated token is valid for longer than Entra ID accepts.",
        "request a token with a shorter lifetime from the issuer, at most 24 hours",
    ),
    Row::new(
        &["AADSTS700023"],
        Denied,
        "The audience of the assertion is not the token endpoint of this authority.",
        "compare the credential file's authentication_endpoint with the login host of the cloud (for example \
         https://login.microsoftonline.com/ in the public cloud), and look for a proxy or an alias between the two",
    ),
    Row::new(
        &["AADSTS700021"],
        Denied,
        "The assertion names another application than the request.",
        "check that the credential file has one client id: issuer and subject of the assertion must be the \
         application",
    ),
    Row::new(
        &["AADSTS1000502"],
        Denied,
        "The certificate is outside its validity.",
        "rotate the certificate: it is outside its validity",
    ),
    Row::new(
        &["AADSTS7000214"],
        Denied,
        "The certificate was revoked.",
        "rotate the certificate: it was revoked",
    ),
    Row::new(
        &["AADSTS7000215", "AADSTS7000222"],
        Denied,
        "The secret of the application is wrong or has expired.",
        "renew the application's secret in Entra, and use its value, not its id",
    ),
    Row::new(
        &["AADSTS7000216", "AADSTS7000218"],
        Denied,
        "The request has no credential of the application.",
        "configure a certificate, a secret or a federated token for the application",
    ),
    Row::new(
        &["AADSTS700025"],
        Denied,
        "The application is a public client, which must not send a credential.",
        "set `isFallbackPublicClient` of the application to false, and remove its redirect addresses of mobile and desktop \
         applications; or use another application",
    ),
    Row::new(
        &["AADSTS700016"],
        Denied,
        "The tenant has no such application.",
        "check the client id, the tenant and the cloud: this tenant has no such application",
    ),
    Row::new(
        &["AADSTS7000229"],
        Denied,
        "The tenant has no service principal for the application.",
        "create the service principal with `az ad sp create`, or check the tenant",
    ),
    Row::new(
        &["AADSTS7000112"],
        Denied,
        "The application is disabled.",
        "enable the application or the managed identity in Entra",
    ),
    Row::new(
        &["AADSTS50194"],
        Invalid,
        "The application belongs to one tenant, and the request uses a common endpoint.",
        "use the tenant's own endpoint, or make the application multi-tenant",
    ),
    Row::new(
        &["AADSTS90002"],
        Invalid,
        "The cloud has no such tenant.",
        "check the tenant id and the authority host: there is no such tenant in this cloud",
    ),
    Row::new(&["AADSTS50059"], Invalid, "The request names no tenant.", "configure the tenant id"),
    Row::new(
        &["AADSTS900382"],
        Denied,
        "The application and the resource are in different clouds.",
        "use an application and an authority host of the cloud of the resource",
    ),
    Row::new(
        &["AADSTS50049"],
        Denied,
        "The authority host is not one of the cloud.",
        "check the authority host, or disable the discovery of instances for an authority of your own",
    ),
    Row::new(
        &["AADSTS9001023"],
        Invalid,
        "The grant does not work at the endpoint `common` or `consumers`.",
        "use the tenant's own endpoint",
    ),
    Row::new(
        &["AADSTS500011"],
        Invalid,
        "The tenant has no service principal for the resource.",
        "check the audience and the cloud: this tenant has no service principal for the resource",
    ),
    Row::new(
        &["AADSTS650057"],
        Invalid,
        "The application does not list the requested resource.",
        "add the resource to the API permissions of the application, or check the audience",
    ),
    Row::new(
        &["AADSTS650053"],
        Denied,
        "The resource has no such permission.",
        "check the scope: the resource does not define the requested permission",
    ),
    Row::new(
        &["AADSTS70011", "AADSTS1002012"],
        Invalid,
        "The scope is malformed.",
        "use the scope <audience>/.default",
    ),
    Row::new(
        &["AADSTS900144"],
        Invalid,
        "The request lacks a parameter, which the message names.",
        "check that no proxy changes the body of requests; if none does, report a defect of lanyard",
    ),
    Row::new(
        &["AADSTS50027"],
        Invalid,
        "The assertion or token in the request is malformed.",
        "check that the token file has one complete token (a JWT) and nothing else",
    ),
    Row::new(
        &["AADSTS70003"],
        Denied,
        "The endpoint does not support the grant.",
        "check the authority host: the endpoint is not the token endpoint of Entra ID, version 2.0",
    ),
    Row::new(
        &["AADSTS53003", "AADSTS50005"],
        Denied,
        "A conditional access policy blocks the identity.",
        "contact the tenant's administrator: conditional access blocks the identity",
    ),
    Row::new(
        &["AADSTS50196"],
        THROTTLED,
        "The same request came too often.",
        "find a caller that requests the same token in a loop",
    ),
    Row::new(
        &["AADSTS90024", "AADSTS90033"],
        Transient,
        "Entra ID has a transient error.",
        "wait: the request is repeated",
    ),
];

/// The codes of federated credentials.
const FEDERATION_ROWS: &[Row] = &[
    Row::new(
        &["AADSTS70021"],
        Invalid,
        "No federated credential of the identity matches the token.",
        "compare issuer, subject and audience of the token with the federated credentials letter by letter; a new \
         one takes some minutes to work",
    ),
    Row::new(
        &["AADSTS700211"],
        Denied,
        "No federated credential of the identity has the token's issuer.",
        "compare the issuer of the federated credential with the token's letter by letter, with the slash at its \
         end; a new one takes some minutes to work",
    ),
    Row::new(
        &["AADSTS700212"],
        Denied,
        "No federated credential of the identity has the token's audience.",
        "correct the audience of the federated credential or of the token: it is api://AzureADTokenExchange unless \
         chosen otherwise; a new one takes some minutes to work",
    ),
    Row::new(
        &["AADSTS700213"],
        Denied,
        "No federated credential of the identity has the token's subject.",
        "correct the subject of the federated credential: it is system:serviceaccount:<namespace>:<name>; a new one \
         takes some minutes to work",
    ),
    Row::new(
        &["AADSTS7002137", "AADSTS7002138"],
        Denied,
        "The token's subject differs from the federated credential in case or form.",
        "correct the subject of the federated credential: subjects are compared letter by letter",
    ),
    Row::new(
        &["AADSTS700222"],
        Denied,
        "The token was issued by Entra ID itself, which no federated credential accepts.",
        "use the token of another issuer, or request the token for the resource directly",
    ),
    Row::new(
        &["AADSTS700223", "AADSTS700238"],
        Denied,
        "A policy of the tenant does not permit the issuer of the token.",
        "contact the tenant's administrator: a policy restricts the issuers of federated credentials",
    ),
    Row::new(
        &["AADSTS7000272"],
        Denied,
        "The key set of the issuer does not have the token's key id, or Entra ID has an older key set.",
        "publish the key at the `jwks_uri` of the issuer's discovery document, and wait until Entra ID has read it, which \
         can take half an hour",
    ),
    Row::new(
        &["AADSTS90061"],
        Transient,
        "Entra ID could not read the documents of the issuer.",
        "publish the issuer's documents at <issuer>/.well-known/openid-configuration, so that Entra could fetch them \
         without a sign-in",
    ),
    Row::new(
        &["AADSTS70025"],
        Denied,
        "The application has no federated credential.",
        "create a federated credential for the application or identity, or check the client id",
    ),
    Row::new(
        &["AADSTS70052"],
        Denied,
        "The application belongs to several tenants, for which the federated credential does not work.",
        "use an application of one tenant or a user-assigned managed identity",
    ),
];

/// The codes of users who sign in.
const USER_ROWS: &[Row] = &[
    Row::new(
        &["AADSTS50034", "AADSTS50020"],
        Denied,
        "The account is not in this tenant.",
        "check the tenant: the account is not in this directory",
    ),
    Row::new(&["AADSTS50057"], Denied, "The account is disabled.", "enable the account in Entra"),
    Row::new(
        &["AADSTS50126", "AADSTS50055"],
        Denied,
        "The user name or the password is wrong, or the password has expired.",
        "correct the password, or sign in interactively",
    ),
    Row::new(
        &["AADSTS50076", "AADSTS50079"],
        Denied,
        "The account needs multifactor authentication.",
        "sign in interactively",
    ),
    Row::new(&["AADSTS50058"], Denied, "No user is signed in.", "sign in interactively"),
    Row::new(
        &[
            "AADSTS50173",
            "AADSTS54005",
            "AADSTS70000",
            "AADSTS70008",
            "AADSTS70043",
            "AADSTS700082",
            "AADSTS9002313",
            "AADSTS501481",
        ],
        Denied,
        "The refresh token or code was revoked, used before, has expired or is malformed.",
        "sign in again",
    ),
    Row::new(
        &["AADSTS65001"],
        Denied,
        "No user or administrator has consented to the permissions of the application.",
        "let the user or an administrator consent to the application",
    ),
    Row::new(
        &["AADSTS65004"],
        Denied,
        "The user declined the sign-in.",
        "sign in again, and accept",
    ),
    Row::new(
        &["AADSTS70016"],
        Denied,
        "The user has not entered the device code yet.",
        "enter the device code on the page that the command names",
    ),
    Row::new(
        &["AADSTS70018", "AADSTS70019"],
        Denied,
        "The device code is wrong or has expired.",
        "start the sign-in again",
    ),
    Row::new(
        &["AADSTS50011"],
        Invalid,
        "The reply address of the sign-in is not one of the application.",
        "add the reply address to the application",
    ),
    Row::new(
        &["AADSTS500112"],
        Invalid,
        "The reply address of the token request differs from that of the sign-in.",
        "send the same reply address in both requests, and look for a proxy that changes scheme or host",
    ),
    Row::new(
        &["AADSTS70007", "AADSTS700054"],
        Invalid,
        "The application may not use the response type or mode of the sign-in.",
        "enable the response type for the application",
    ),
];

/// Replies without an AADSTS code.
const OAUTH_ROWS: &[Row] = &[
    Row::new(
        &["invalid_client"],
        Denied,
        "Entra ID does not accept the credential.",
        "check that the certificate, secret or federated credential belongs to this client id in this tenant",
    ),
    Row::new(
        &["unauthorized_client"],
        Denied,
        "The application may not use the grant, or the tenant does not know it.",
        "check the client id, the tenant and the cloud: this tenant does not know the application",
    ),
    Row::new(
        &["invalid_scope", "invalid_resource"],
        Invalid,
        "The scope is malformed, or the cloud does not know the resource.",
        "use the scope <audience>/.default of a service that exists in this cloud",
    ),
    Row::new(
        &["invalid_request"],
        Invalid,
        "The request is malformed.",
        "check the authority host, and that no proxy changes the body of requests",
    ),
    Row::new(
        &["temporarily_unavailable"],
        Transient,
        "Entra ID or a proxy in front of it failed.",
        "wait: the request is repeated",
    ),
    Row::of_status(
        &[(429, 429)],
        THROTTLED,
        "The application is throttled.",
        "wait as long as Retry-After says, and find the processes that request tokens without caching them",
    ),
    Row::of_status(
        &[(408, 408), (500, 599)],
        Transient,
        "Entra ID or a proxy in front of it failed.",
        "wait: the request is repeated",
    ),
    Row::of_status(
        &[(407, 407)],
        Denied,
        "The proxy requires a sign-in.",
        "check HTTPS_PROXY: the proxy wants a user name and a password",
    ),
    Row::of_status(
        &[(300, 399)],
        Denied,
        "The server redirects, which lanyard does not follow.",
        "check the authority's URL, and the proxies in front of it: redirects are not followed",
    ),
    Row::without_code(
        Denied,
        "Another server answered, because errors of Entra ID have a code.",
        "check the authority's URL, and that no proxy or gateway answers instead of Entra ID",
    ),
];
