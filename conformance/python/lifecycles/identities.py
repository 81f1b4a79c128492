"""azure-mgmt-msi, and a sign-in with a federated credential of the identity."""

from azure.mgmt.msi import ManagedServiceIdentityClient
from lifecycle_steps import name_of, pages_of, resource_group

GROUP = "sdk-identities"
ISSUER = "https://issuer.example.org"


def identity_facts(identity):
    return {
        "id": identity.id,
        "location": identity.location,
        "tags": identity.tags,
        "tenant": identity.tenant_id,
        "client_id": identity.client_id,
        "principal_id": identity.principal_id,
    }


def credential_facts(credential):
    return {
        "id": credential.id,
        "issuer": credential.issuer,
        "subject": credential.subject,
        "audiences": credential.audiences,
    }


def federated_credential(subject):
    return {"issuer": ISSUER, "subject": subject, "audiences": ["api://AzureADTokenExchange"]}


def run(steps, credential, inputs):
    subscription = inputs["subscription"]
    client = ManagedServiceIdentityClient(credential, subscription)
    identities = client.user_assigned_identities
    credentials = client.federated_identity_credentials
    steps.run(
        "create an identity in a missing group",
        lambda: identities.create_or_update(GROUP, "workload", {"location": "westeurope"}),
    )
    with resource_group(credential, subscription, GROUP):
        steps.run(
            "create an identity",
            lambda: identities.create_or_update(
                GROUP, "workload", {"location": "westeurope", "tags": {"stage": "test"}}
            ),
            identity_facts,
        )
        identities.create_or_update(GROUP, "other", {"location": "westeurope"})
        steps.run("get an identity", lambda: identities.get(GROUP, "workload"), identity_facts)
        steps.run(
            "change the tags",
            lambda: identities.update(GROUP, "workload", {"tags": {"stage": "production"}}),
            lambda identity: {"tags": identity.tags},
        )
        steps.run(
            "list the identities of the group",
            lambda: identities.list_by_resource_group(GROUP),
            lambda found: pages_of(found, name_of),
        )
        run_federated_credentials(steps, credentials)
        steps.run("get a missing identity", lambda: identities.get(GROUP, "missing"))
        steps.run("delete an identity", lambda: identities.delete(GROUP, "workload"))
        steps.run("get a deleted identity", lambda: identities.get(GROUP, "workload"))


def run_federated_credentials(steps, credentials):
    def create(name, subject):
        return credentials.create_or_update(GROUP, "workload", name, federated_credential(subject))

    steps.run(
        "create a federated credential",
        lambda: create("app", "system:serviceaccount:app:app"),
        credential_facts,
    )
    steps.run(
        "create a federated credential with the same subject",
        lambda: create("copy", "system:serviceaccount:app:app"),
    )
    create("web", "system:serviceaccount:app:web")
    steps.run(
        "list the federated credentials",
        lambda: credentials.list(GROUP, "workload"),
        lambda found: pages_of(found, name_of),
    )
    steps.run(
        "delete a federated credential", lambda: credentials.delete(GROUP, "workload", "app")
    )
    steps.run(
        "get a deleted federated credential", lambda: credentials.get(GROUP, "workload", "app")
    )
