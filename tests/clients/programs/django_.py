"""Django: migrations of the built-in applications and of a new one, ORM work, inspectdb."""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from steps import equal, parts, raises, run, step

FOLDER = Path(tempfile.mkdtemp(prefix="django-"))
MODELS = """
from django.db import models


class Shop(models.Model):
    name = models.CharField(max_length=50, unique=True)
    opened = models.DateTimeField(auto_now_add=True)
    data = models.JSONField(default=dict)
    key = models.UUIDField(null=True, db_index=True)

    class Meta:
        indexes = [models.Index(fields=["name", "opened"], name="by_name_opened")]


class Item(models.Model):
    shop = models.ForeignKey(Shop, on_delete=models.CASCADE, related_name="items")
    price = models.DecimalField(max_digits=8, decimal_places=2)
    sold = models.BooleanField(default=False)
    note = models.TextField(blank=True)
    lasts = models.DurationField(null=True)
    friends = models.ManyToManyField("self")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(price__gt=0), name="price_above_0"),
            models.UniqueConstraint(fields=["shop", "price"], name="one_price"),
        ]
"""


def setup() -> None:
    (FOLDER / "shop" / "migrations").mkdir(parents=True)
    for name in ("shop/__init__.py", "shop/migrations/__init__.py"):
        (FOLDER / name).touch()
    (FOLDER / "shop" / "models.py").write_text(MODELS)
    sys.path.insert(0, str(FOLDER))
    import django
    from django.conf import settings

    at = parts()
    settings.configure(
        SECRET_KEY="x",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=[
            *(
                f"django.contrib.{app}"
                for app in (
                    "admin",
                    "auth",
                    "contenttypes",
                    "sessions",
                    "messages",
                    "sites",
                    "postgres",
                )
            ),
            "shop",
        ],
        SITE_ID=1,
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": at["host"],
                "PORT": at["port"],
                "USER": at["user"],
                "NAME": at["database"],
            }
        },
    )
    django.setup()


def call(*args, **options) -> str:
    from django.core.management import call_command

    out = io.StringIO()
    call_command(*args, stdout=out, **options)
    return out.getvalue()


@step
def migrates_the_built_in_applications():
    call("migrate", interactive=False, verbosity=0)
    assert "[X] 0012_alter_user_first_name_max_length" in call("showmigrations", "auth")


@step
def makes_and_runs_migrations():
    call("makemigrations", "shop", verbosity=0)
    call("migrate", interactive=False, verbosity=0)
    call("sqlmigrate", "shop", "0001")


@step
def orm_work():
    from django.db import IntegrityError, connection, transaction
    from django.db.models import Avg, Count, F, OuterRef, Q, Subquery, Window
    from django.db.models.functions import Rank, TruncMonth
    from shop.models import Item, Shop

    shop = Shop.objects.create(name="One", data={"k": {"l": [1, 2]}})
    Item.objects.bulk_create([Item(shop=shop, price=i + 1) for i in range(50)])
    item = Item.objects.first()
    item.friends.add(*Item.objects.all()[1:4])
    equal(item.friends.count(), 3)
    equal(Item.objects.filter(Q(price__lt=3) | Q(sold=True)).update(price=F("price") + 100), 2)
    with raises(IntegrityError), transaction.atomic(), transaction.atomic():
        Item.objects.create(shop=shop, price=-1)
    with raises(IntegrityError), transaction.atomic():
        Shop.objects.create(name="One")
    equal(Shop.objects.filter(data__k__l__contains=[1]).count(), 1)
    equal(Shop.objects.filter(data__k__has_key="l", name__icontains="ON").count(), 1)
    found = Shop.objects.annotate(n=Count("items"), mean=Avg("items__price")).get()
    equal(found.n, 50)
    ranked = Item.objects.annotate(r=Window(Rank(), order_by=F("price").desc())).order_by("r")
    equal([i.r for i in ranked[:2]], [1, 2])
    latest = Item.objects.filter(shop=OuterRef("pk")).order_by("-id").values("id")[:1]
    assert Shop.objects.annotate(last=Subquery(latest)).get().last
    equal(Shop.objects.annotate(m=TruncMonth("opened")).values("m").distinct().count(), 1)
    Shop.objects.update_or_create(name="Two", defaults={"data": {}})
    Shop.objects.bulk_create(
        [Shop(name="Two", data={"z": 1})], update_conflicts=True, unique_fields=["name"],
        update_fields=["data"],
    )  # fmt: skip
    equal(Shop.objects.get(name="Two").data, {"z": 1})
    with transaction.atomic():
        Shop.objects.select_for_update().get(name="Two")
    equal(len(list(Item.objects.iterator(chunk_size=7))), 50)
    equal(shop.delete()[0], 57)
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::int", [3])
        equal(cursor.fetchone(), (3,))


@step
def users_sessions_and_admin():
    from django.contrib.auth import authenticate
    from django.contrib.auth.models import Group, Permission, User
    from django.contrib.sessions.backends.db import SessionStore

    user = User.objects.create_superuser("ann", "ann@example.org", "secret")
    assert authenticate(username="ann", password="secret") == user
    group = Group.objects.create(name="staff")
    group.permissions.set(Permission.objects.filter(content_type__app_label="auth"))
    user.groups.add(group)
    equal(Permission.objects.filter(group__user=user).count(), 12)
    store = SessionStore()
    store["k"] = 1
    store.save()
    equal(SessionStore(store.session_key)["k"], 1)


@step
def alters_tables():
    from django.db import connection, models
    from shop.models import Item, Shop

    with connection.schema_editor() as editor:
        field = models.IntegerField(default=3, db_index=True)
        field.set_attributes_from_name("size")
        editor.add_field(Item, field)
        old = Shop._meta.get_field("name")
        new = models.CharField(max_length=90)
        new.set_attributes_from_name("title")
        new.model = Shop
        editor.alter_field(Shop, old, new)
        wider = models.BigIntegerField(null=True)
        wider.set_attributes_from_name("size")
        editor.alter_field(Item, field, wider)
        editor.remove_constraint(Item, Item._meta.constraints[0])
        editor.alter_db_table(Item, "shop_item", "shop_thing")


@step
def inspects():
    from django.db import connection

    text = call("inspectdb")
    for wanted in (
        "class ShopThing(models.Model)", "title = models.CharField(max_length=90)",
        "size = models.BigIntegerField(blank=True, null=True)",
        "class AuthUser(models.Model)", "data = models.JSONField()",
        "unique_together = (('shop', 'price'),)",
    ):  # fmt: skip
        assert wanted in text, wanted
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, "shop_shop")
        assert any(c["index"] and c["columns"] == ["title", "opened"] for c in found.values()), (
            found
        )
        equal(connection.introspection.get_primary_key_column(cursor, "shop_shop"), "id")


@step
def migrates_back():
    call("sqlflush")
    call("migrate", "sites", "zero", interactive=False, verbosity=0)


if __name__ == "__main__":
    setup()
    run()
    shutil.rmtree(FOLDER, ignore_errors=True)
