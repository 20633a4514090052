"""Addresses of a real cluster: every node finds its neighbours' pods, and none shares an address with another."""

from penstock.devcluster.network import NODES, Network

NET = Network("psabc0", 140)


def test_pods_find_the_api_server_at_the_first_address_of_the_services() -> None:
    assert (NET.services, NET.api) == ("10.140.255.0/24", "10.140.255.1")


def test_a_node_knows_the_way_to_all_its_neighbours_and_none_to_itself() -> None:
    routes = dict(NET.routes(1))
    assert routes["10.140.1.0/24"] == "10.140.0.10"
    assert NET.pods(1) not in routes
    assert routes["default"] == NET.host


def test_no_two_places_share_an_address() -> None:
    places = [NET.host, NET.api, *map(NET.node, range(NODES))]
    networks = [NET.services, *map(NET.pods, range(NODES)), "10.140.0.0/24"]
    assert len(set(places)) == len(places)
    assert len(set(networks)) == len(networks)
