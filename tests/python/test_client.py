"""The Python client against a real server: KUBECONFIG names it. Run by tests/tests/python_client.rs."""

import json
import os
import threading
import unittest

from kubernetes import client, config, watch
from kubernetes.client.rest import ApiException

NAMESPACE = "default"


def config_map(name, data=None, labels=None):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels), data=data or {})


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        config.load_kube_config(os.environ["KUBECONFIG"])
        cls.core = client.CoreV1Api()
        cls.apps = client.AppsV1Api()

    def test_create_read_update_delete(self):
        made = self.core.create_namespaced_config_map(NAMESPACE, config_map("crud", {"color": "red"}))
        self.assertTrue(made.metadata.uid)
        read = self.core.read_namespaced_config_map("crud", NAMESPACE)
        self.assertEqual(read.data, {"color": "red"})
        read.data["color"] = "blue"
        replaced = self.core.replace_namespaced_config_map("crud", NAMESPACE, read)
        self.assertEqual(replaced.data, {"color": "blue"})
        self.assertGreater(int(replaced.metadata.resource_version), int(made.metadata.resource_version))
        gone = self.core.delete_namespaced_config_map("crud", NAMESPACE)
        self.assertEqual(gone.status, "Success")
        with self.assertRaises(ApiException) as raised:
            self.core.read_namespaced_config_map("crud", NAMESPACE)
        self.assertEqual(raised.exception.status, 404)

    def test_typed_objects_keep_their_types(self):
        container = client.V1Container(
            name="web",
            image="nginx",
            ports=[client.V1ContainerPort(container_port=80)],
            resources=client.V1ResourceRequirements(requests={"cpu": "250m", "memory": "64Mi"}),
            readiness_probe=client.V1Probe(http_get=client.V1HTTPGetAction(path="/", port=80)),
        )
        template = client.V1PodTemplateSpec(
            metadata=client.V1ObjectMeta(labels={"app": "web"}), spec=client.V1PodSpec(containers=[container])
        )
        spec = client.V1DeploymentSpec(
            replicas=0, selector=client.V1LabelSelector(match_labels={"app": "web"}), template=template
        )
        self.apps.create_namespaced_deployment(
            NAMESPACE, client.V1Deployment(metadata=client.V1ObjectMeta(name="typed"), spec=spec)
        )
        read = self.apps.read_namespaced_deployment("typed", NAMESPACE)
        self.assertEqual(read.spec.replicas, 0)
        self.assertEqual(read.spec.strategy.rolling_update.max_surge, "25%")
        self.assertEqual(read.spec.template.spec.containers[0].readiness_probe.http_get.scheme, "HTTP")
        self.assertIsNotNone(read.metadata.creation_timestamp.tzinfo)
        scale = self.apps.read_namespaced_deployment_scale("typed", NAMESPACE)
        scale.spec.replicas = 2
        self.apps.replace_namespaced_deployment_scale("typed", NAMESPACE, scale)
        self.assertEqual(self.apps.read_namespaced_deployment("typed", NAMESPACE).spec.replicas, 2)
        self.apps.delete_namespaced_deployment("typed", NAMESPACE)

    def test_patch_types(self):
        self.core.create_namespaced_config_map(NAMESPACE, config_map("patched", {"a": "1"}))
        send = self.core.patch_namespaced_config_map
        # The client picks JSON patch for a list; other types are named.
        self.assertEqual(send("patched", NAMESPACE, [{"op": "add", "path": "/data/b", "value": "2"}]).data, {"a": "1", "b": "2"})
        for content_type, body, expected in [
            ("application/strategic-merge-patch+json", {"data": {"c": "3"}}, {"a": "1", "b": "2", "c": "3"}),
            ("application/merge-patch+json", {"data": {"b": None}}, {"a": "1", "c": "3"}),
        ]:
            with self.subTest(content_type):
                self.assertEqual(send("patched", NAMESPACE, body, _content_type=content_type).data, expected)
        applied = send(
            "patched",
            NAMESPACE,
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "patched"}, "data": {"d": "4"}},
            _content_type="application/apply-patch+yaml",
            field_manager="python",
        )
        self.assertEqual(applied.data, {"a": "1", "c": "3", "d": "4"})
        managers = {entry.manager: entry.operation for entry in applied.metadata.managed_fields}
        self.assertEqual(managers["python"], "Apply")

    def test_pages(self):
        for number in range(7):
            self.core.create_namespaced_secret(
                NAMESPACE, client.V1Secret(metadata=client.V1ObjectMeta(name=f"page-{number}", labels={"set": "pages"}))
            )
        names, token, pages = [], None, 0
        while True:
            page = self.core.list_namespaced_secret(NAMESPACE, label_selector="set=pages", limit=3, _continue=token)
            names += [item.metadata.name for item in page.items]
            pages += 1
            token = page.metadata._continue
            if not token:
                break
        self.assertEqual(names, [f"page-{number}" for number in range(7)])
        self.assertEqual(pages, 3)
        self.core.delete_collection_namespaced_secret(NAMESPACE, label_selector="set=pages")
        self.assertEqual(self.core.list_namespaced_secret(NAMESPACE, label_selector="set=pages").items, [])

    def test_watch_resumes_where_it_stopped(self):
        start = self.core.list_namespaced_config_map(NAMESPACE).metadata.resource_version

        def change():
            self.core.create_namespaced_config_map(NAMESPACE, config_map("watched", {"n": "0"}, {"set": "watch"}))
            for number in range(1, 4):
                self.core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"n": str(number)}})
            self.core.delete_namespaced_config_map("watched", NAMESPACE)

        changing = threading.Thread(target=change)
        changing.start()
        seen, last = [], start
        for stop_after in (2, 3):
            stream = watch.Watch()
            count = 0
            for event in stream.stream(
                self.core.list_namespaced_config_map,
                NAMESPACE,
                label_selector="set=watch",
                resource_version=last,
                timeout_seconds=20,
            ):
                seen.append((event["type"], event["object"].data["n"]))
                last = event["object"].metadata.resource_version
                count += 1
                if count == stop_after:
                    stream.stop()
        changing.join()
        self.assertEqual(
            seen, [("ADDED", "0"), ("MODIFIED", "1"), ("MODIFIED", "2"), ("MODIFIED", "3"), ("DELETED", "3")]
        )

    def test_error_bodies(self):
        cases = [
            (404, "NotFound", lambda: self.core.read_namespaced_pod("missing", NAMESPACE)),
            (409, "AlreadyExists", lambda: self.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="default")))),
            (422, "Invalid", lambda: self.core.create_namespaced_config_map(NAMESPACE, config_map("Not A Name"))),
            (400, "BadRequest", lambda: self.core.list_namespaced_pod(NAMESPACE, label_selector="a b")),
            (404, "NotFound", lambda: self.core.create_namespaced_config_map("nowhere", config_map("x"))),
        ]
        for code, reason, call in cases:
            with self.subTest(reason):
                with self.assertRaises(ApiException) as raised:
                    call()
                self.assertEqual(raised.exception.status, code)
                body = json.loads(raised.exception.body)
                self.assertEqual((body["kind"], body["status"], body["reason"], body["code"]), ("Status", "Failure", reason, code))

    def test_conflict(self):
        made = self.core.create_namespaced_config_map(NAMESPACE, config_map("conflict", {"a": "1"}))
        self.core.patch_namespaced_config_map("conflict", NAMESPACE, {"data": {"a": "2"}})
        with self.assertRaises(ApiException) as raised:
            self.core.replace_namespaced_config_map("conflict", NAMESPACE, made)
        self.assertEqual(raised.exception.status, 409)

    def test_token(self):
        self.core.create_namespaced_service_account(NAMESPACE, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="robot")))
        request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=3600))
        token = self.core.create_namespaced_service_account_token("robot", NAMESPACE, request).status.token
        own = client.Configuration.get_default_copy()
        own.cert_file, own.key_file = None, None
        own.api_key = {"authorization": f"Bearer {token}"}
        robot = client.ApiClient(own)
        review = client.AuthenticationV1Api(robot).create_self_subject_review({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"})
        self.assertEqual(review.status.user_info.username, "system:serviceaccount:default:robot")
        self.assertIn("system:serviceaccounts:default", review.status.user_info.groups)
        with self.assertRaises(ApiException) as raised:
            client.CoreV1Api(robot).list_namespaced_secret(NAMESPACE)
        self.assertEqual(raised.exception.status, 403)
        own.api_key = {"authorization": "Bearer forged"}
        with self.assertRaises(ApiException) as raised:
            client.CoreV1Api(client.ApiClient(own)).list_namespaced_secret(NAMESPACE)
        self.assertEqual(raised.exception.status, 401)

    def test_custom_objects(self):
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "trees.example.org"},
            "spec": {
                "group": "example.org",
                "scope": "Namespaced",
                "names": {"plural": "trees", "singular": "tree", "kind": "Tree"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
            },
        }
        extensions = client.ApiextensionsV1Api()
        extensions.create_custom_resource_definition(definition)
        for event in watch.Watch().stream(extensions.list_custom_resource_definition, timeout_seconds=20):
            conditions = event["object"].status and event["object"].status.conditions or []
            if any(condition.type == "Established" and condition.status == "True" for condition in conditions):
                break
        custom = client.CustomObjectsApi()
        oak = {"apiVersion": "example.org/v1", "kind": "Tree", "metadata": {"name": "oak"}, "spec": {"height": 7}}
        custom.create_namespaced_custom_object("example.org", "v1", NAMESPACE, "trees", oak)
        listed = custom.list_namespaced_custom_object("example.org", "v1", NAMESPACE, "trees")
        self.assertEqual([item["spec"]["height"] for item in listed["items"]], [7])
        extensions.delete_custom_resource_definition("trees.example.org")


if __name__ == "__main__":
    unittest.main()
