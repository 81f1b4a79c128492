"""Runs the steps of a lifecycle and prints the outcome of each as one JSON line."""

import contextlib
import json

from azure.core.exceptions import HttpResponseError
from azure.mgmt.resource.resources import ResourceManagementClient


class LifecycleSteps:
    """Prints `{"step", "facts"}` for a call that succeeds, and `{"step", "error"}` for one that Azure rejects."""

    def __init__(self, error_details):
        self.error_details = error_details

    def run(self, step, call, facts=None):
        """Runs a call and prints the facts of its result. Returns the result, or None if Azure rejects the call.

        `facts` maps the result to a dictionary. By default, the only fact is the result.
        """
        try:
            result = call()
        except HttpResponseError as error:
            name = type(error).__name__
            # The general type is not reported.
            details = {
                **self.error_details(error),
                "type": None if name == "HttpResponseError" else name,
            }
            print(json.dumps({"step": step, "error": details}), flush=True)
            return None
        values = facts(result) if facts else {"result": result}
        print(json.dumps({"step": step, "facts": values}), flush=True)
        return result


@contextlib.contextmanager
def resource_group(credential, subscription, name):
    """Creates a resource group, and deletes it at the end, also after a failure."""
    groups = ResourceManagementClient(credential, subscription).resource_groups
    groups.create_or_update(name, {"location": "westeurope"})
    try:
        yield
    finally:
        groups.begin_delete(name).wait()


def pages_of(paged, facts):
    """Returns the number of pages, and the sorted facts of their items."""
    pages = [list(page) for page in paged.by_page()]
    items = sorted((facts(item) for page in pages for item in page), key=str)
    return {"pages": len(pages), "items": items}


def name_of(item):
    return item.name
