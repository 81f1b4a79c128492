"""Microsoft Graph, with the pipeline and the credentials of the Azure SDK."""

from azure.core import PipelineClient
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    map_error,
)
from azure.core.pipeline.policies import BearerTokenCredentialPolicy
from azure.core.rest import HttpRequest
from azure.identity import ClientSecretCredential

ERRORS = {401: ClientAuthenticationError, 404: ResourceNotFoundError, 409: ResourceExistsError}


class GraphClient:
    def __init__(self, credential):
        policy = BearerTokenCredentialPolicy(credential, "https://graph.microsoft.com/.default")
        self.client = PipelineClient("https://graph.microsoft.com/v1.0", policies=[policy])

    def send(self, method, path, json=None, params=None):
        request = HttpRequest(method, path, json=json, params=params)
        request.url = self.client.format_url(request.url)
        response = self.client.send_request(request)
        if response.status_code >= 400:
            map_error(response.status_code, response, ERRORS)
            raise HttpResponseError(response=response)
        return response.json() if response.content else None

    def pages(self, path, params):
        page = self.send("GET", path, params=params)
        pages = [page]
        while link := page.get("@odata.nextLink"):
            page = self.send("GET", link)
            pages.append(page)
        names = sorted(item["displayName"] for page in pages for item in page["value"])
        return {"pages": len(pages), "items": names}


def application_facts(application):
    return {
        "id": application["id"],
        "client_id": application["appId"],
        "name": application["displayName"],
        "audience": application["signInAudience"],
        "passwords": len(application["passwordCredentials"]),
    }


def run(steps, credential, inputs):
    graph = GraphClient(credential)

    def create(name):
        return graph.send("POST", "/applications", {"displayName": name})

    application = steps.run(
        "create an application", lambda: create("sdk-lifecycle-one"), application_facts
    )
    create("sdk-lifecycle-two")
    path = f"/applications/{application['id']}"
    steps.run(
        "create a service principal",
        lambda: graph.send("POST", "/servicePrincipals", {"appId": application["appId"]}),
        lambda it: {
            "name": it["displayName"],
            "type": it["servicePrincipalType"],
            "same_client": it["appId"] == application["appId"],
            "enabled": it["accountEnabled"],
        },
    )
    steps.run(
        "create a second service principal",
        lambda: graph.send("POST", "/servicePrincipals", {"appId": application["appId"]}),
    )
    password = steps.run(
        "add a password",
        lambda: graph.send(
            "POST", f"{path}/addPassword", {"passwordCredential": {"displayName": "test"}}
        ),
        lambda it: {"name": it["displayName"], "hint": it["hint"] == it["secretText"][:3]},
    )
    steps.run(
        "sign in with the password",
        lambda: ClientSecretCredential(
            inputs["tenant"], application["appId"], password["secretText"]
        ).get_token("https://graph.microsoft.com/.default"),
        lambda token: {"signed_token": token.token.count(".") == 2},
    )
    steps.run(
        "rename the application",
        lambda: graph.send("PATCH", path, {"displayName": "sdk-lifecycle-renamed"}),
    )
    steps.run("get the application", lambda: graph.send("GET", path), application_facts)
    steps.run(
        "create a federated credential",
        lambda: graph.send(
            "POST",
            f"{path}/federatedIdentityCredentials",
            {
                "name": "workload",
                "issuer": "https://issuer.example.org",
                "subject": "system:serviceaccount:app:app",
                "audiences": ["api://AzureADTokenExchange"],
            },
        ),
        lambda it: {"name": it["name"], "subject": it["subject"], "audiences": it["audiences"]},
    )
    steps.run(
        "list the applications, one per page",
        lambda: graph.pages(
            "/applications", {"$filter": "startswith(displayName,'sdk-lifecycle')", "$top": "1"}
        ),
        dict,
    )
    steps.run(
        "list with an invalid filter",
        lambda: graph.send("GET", "/applications", params={"$filter": "displayName ="}),
    )
    steps.run(
        "remove the password",
        lambda: graph.send("POST", f"{path}/removePassword", {"keyId": password["keyId"]}),
    )
    steps.run(
        "sign in with the removed password",
        lambda: ClientSecretCredential(
            inputs["tenant"], application["appId"], password["secretText"]
        ).get_token("https://graph.microsoft.com/.default"),
    )
    steps.run("delete the application", lambda: graph.send("DELETE", path))
    steps.run("get the deleted application", lambda: graph.send("GET", path))
    run_deleted_items(steps, graph, application)


def run_deleted_items(steps, graph, application):
    """Restores the deleted application, and deletes it permanently."""
    path = f"/applications/{application['id']}"
    item = f"/directory/deletedItems/{application['id']}"
    steps.run(
        "list the deleted applications",
        lambda: graph.pages("/directory/deletedItems/microsoft.graph.application", {}),
        dict,
    )
    steps.run(
        "find the deleted application",
        lambda: graph.send("GET", item),
        lambda it: {"type": it["@odata.type"], "name": it["displayName"], "deleted": it["deletedDateTime"]},
    )
    steps.run(
        "restore the application",
        lambda: graph.send("POST", f"{item}/restore"),
        lambda it: {"type": it["@odata.type"], "name": it["displayName"]},
    )
    steps.run("get the restored application", lambda: graph.send("GET", path), application_facts)
    steps.run("find the restored application", lambda: graph.send("GET", item))
    graph.send("DELETE", path)
    steps.run("delete the application permanently", lambda: graph.send("DELETE", item))
    steps.run("restore the permanently deleted application", lambda: graph.send("POST", f"{item}/restore"))
