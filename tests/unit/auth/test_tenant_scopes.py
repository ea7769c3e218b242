import pytest

from service.auth.tenants import TenantScope, is_tenant, public_name, split
from service.errors import NotGranted, UnknownExperiment

ACME = TenantScope("acme")


def test_tenants_use_the_same_names_apart():
    names = [
        tenant_scope.full_name("doses")
        for tenant_scope in (TenantScope(), ACME, TenantScope("Acme"))
    ]
    assert names == ["doses", "acme/doses", "Acme/doses"]
    assert {public_name(each) for each in names} == {"doses"}
    assert [ACME.holds(each) for each in names] == [False, True, False]


@pytest.mark.parametrize("tenant_scope", [TenantScope(), TenantScope("zenith"), ACME])
@pytest.mark.parametrize("name", ["acme/doses", "/doses", "zenith/acme/doses"])
def test_no_name_leads_to_another_tenant(tenant_scope: TenantScope, name: str):
    with pytest.raises(UnknownExperiment):
        tenant_scope.full_name(name)


def test_a_tenant_scope_may_be_restricted_to_some_names():
    some = TenantScope("acme", frozenset({"doses"}))
    assert some.full_name("doses") == some.new_full_name("doses") == "acme/doses"
    assert (some.holds("acme/doses"), some.holds("acme/offers"), some.holds("doses")) == (1, 0, 0)
    with pytest.raises(UnknownExperiment):
        some.full_name("offers")
    with pytest.raises(NotGranted):
        some.new_full_name("offers")


@pytest.mark.parametrize("full_name", ["doses", "acme/doses"])
def test_a_full_name_is_taken_apart_and_put_together(full_name: str):
    tenant_scope, name = split(full_name)
    assert tenant_scope.full_name(name) == full_name


def test_a_tenants_name_is_plain():
    assert is_tenant("")
    assert is_tenant("a.b_c-1")
    assert not any(map(is_tenant, ("a/b", "-a", "a b", "ä", "a" * 65, "a\n")))
