"""How far the expected target reward and the verdict can be trusted, on pairs with known target rewards."""
