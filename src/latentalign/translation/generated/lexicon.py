"""Words of the generated corpus: a few dozen German and English words with their forms."""

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun: gender m, f or n; singular and plural on both sides."""

    gender: str
    singular: str
    plural: str
    english: str
    english_plural: str

    @property
    def dative_plural(self) -> str:
        return self.plural if self.plural.endswith(("n", "s")) else f"{self.plural}n"


class Verb(NamedTuple):
    """A verb: third person singular, infinitive and participle; English base, third person and past."""

    present: str
    infinitive: str
    participle: str
    english: str
    english_present: str
    english_past: str
    particle: str = ""  # stands apart at the end of a main clause
    english_particle: str = ""


def _nouns(text: str) -> list[Noun]:
    return [Noun(*line.split()) for line in text.strip().splitlines()]


def _verbs(text: str) -> list[Verb]:
    rows = (line.split() for line in text.strip().splitlines())
    return [Verb(*("" if cell == "-" else cell for cell in row)) for row in rows]


PEOPLE = _nouns("""
m Lehrer Lehrer teacher teachers
f Lehrerin Lehrerinnen teacher teachers
m Arzt Ärzte doctor doctors
f Frau Frauen woman women
m Mann Männer man men
n Kind Kinder child children
n Mädchen Mädchen girl girls
m Bäcker Bäcker baker bakers
f Köchin Köchinnen cook cooks
m Gärtner Gärtner gardener gardeners
f Nachbarin Nachbarinnen neighbour neighbours
m Freund Freunde friend friends
f Schwester Schwestern sister sisters
m Bruder Brüder brother brothers
m Hund Hunde dog dogs
f Katze Katzen cat cats
n Pferd Pferde horse horses
m Vogel Vögel bird birds
""")

THINGS = _nouns("""
m Ball Bälle ball balls
n Buch Bücher book books
m Brief Briefe letter letters
f Tasche Taschen bag bags
m Stuhl Stühle chair chairs
n Bild Bilder picture pictures
f Lampe Lampen lamp lamps
m Schlüssel Schlüssel key keys
n Messer Messer knife knives
f Blume Blumen flower flowers
m Apfel Äpfel apple apples
n Brot Brote loaf loaves
f Flasche Flaschen bottle bottles
m Korb Körbe basket baskets
n Fahrrad Fahrräder bicycle bicycles
f Uhr Uhren clock clocks
m Mantel Mäntel coat coats
n Hemd Hemden shirt shirts
""")

PLACES = _nouns("""
m Garten Gärten garden gardens
n Haus Häuser house houses
f Küche Küchen kitchen kitchens
m Bahnhof Bahnhöfe station stations
f Schule Schulen school schools
n Zimmer Zimmer room rooms
m Wald Wälder forest forests
f Brücke Brücken bridge bridges
m Laden Läden shop shops
n Feld Felder field fields
f Kirche Kirchen church churches
m Hof Höfe yard yards
""")

# first halves of compounds: Gartenstuhl, garden chair
COMPOUND_HEADS: list[tuple[str, str]] = [
    ("Garten", "garden"),
    ("Holz", "wood"),
    ("Kinder", "children's"),
    ("Winter", "winter"),
    ("Küchen", "kitchen"),
    ("Glas", "glass"),
    ("Reise", "travel"),
    ("Schul", "school"),
    ("Stein", "stone"),
    ("Sommer", "summer"),
]

TRANSITIVE = _verbs("""
sieht sehen gesehen see sees saw
findet finden gefunden find finds found
kauft kaufen gekauft buy buys bought
malt malen gemalt paint paints painted
sucht suchen gesucht seek seeks sought
trägt tragen getragen carry carries carried
bringt bringen gebracht bring brings brought
verkauft verkaufen verkauft sell sells sold
versteckt verstecken versteckt hide hides hid
repariert reparieren repariert repair repairs repaired
wirft werfen geworfen throw throws threw
nimmt nehmen genommen take takes took
öffnet öffnen geöffnet open opens opened
holt holen abgeholt collect collects collected ab
hebt heben aufgehoben pick picks picked auf up
schaut schauen angeschaut look looks looked an at
legt legen weggelegt put puts put weg away
gibt geben zurückgegeben return returns returned zurück
""")

INTRANSITIVE = _verbs("""
schläft schlafen geschlafen sleep sleeps slept
lacht lachen gelacht laugh laughs laughed
singt singen gesungen sing sings sang
tanzt tanzen getanzt dance dances danced
wartet warten gewartet wait waits waited
arbeitet arbeiten gearbeitet work works worked
spielt spielen gespielt play plays played
ruht ruhen ausgeruht rest rests rested aus
steht stehen aufgestanden get gets got auf up
""")

ADJECTIVES: list[tuple[str, str]] = [
    ("alt", "old"),
    ("jung", "young"),
    ("groß", "big"),
    ("klein", "small"),
    ("rot", "red"),
    ("blau", "blue"),
    ("grün", "green"),
    ("schön", "beautiful"),
    ("müd", "tired"),
    ("neu", "new"),
    ("schwer", "heavy"),
    ("leicht", "light"),
    ("braun", "brown"),
    ("schmutzig", "dirty"),
    ("fröhlich", "happy"),
    ("traurig", "sad"),
]

NAMES = ["Anna", "Paul", "Clara", "Emil", "Greta", "Jonas", "Lotte", "Oskar"]

TIMES: list[tuple[str, str]] = [
    ("heute", "today"),
    ("morgens", "in the morning"),
    ("abends", "in the evening"),
    ("oft", "often"),
    ("immer", "always"),
    ("jetzt", "now"),
    ("manchmal", "sometimes"),
    ("sonntags", "on Sundays"),
]

MANNERS: list[tuple[str, str]] = [
    ("schnell", "quickly"),
    ("langsam", "slowly"),
    ("leise", "quietly"),
    ("gern", "gladly"),
    ("allein", "alone"),
    ("vorsichtig", "carefully"),
]

# all of them with the dative here
PREPOSITIONS: list[tuple[str, str]] = [
    ("in", "in"),
    ("an", "at"),
    ("hinter", "behind"),
    ("neben", "beside"),
    ("bei", "near"),
    ("vor", "in front of"),
]
CONTRACTIONS = {("in", "dem"): "im", ("an", "dem"): "am", ("bei", "dem"): "beim"}

CONJUNCTIONS: list[tuple[str, str]] = [
    ("weil", "because"),
    ("während", "while"),
    ("obwohl", "although"),
    ("wenn", "when"),
    ("bevor", "before"),
]

# German singular and plural, English singular and plural
MODALS: list[tuple[str, str, str, str]] = [
    ("kann", "können", "can", "can"),
    ("wird", "werden", "will", "will"),
    ("soll", "sollen", "should", "should"),
    ("muss", "müssen", "has to", "have to"),
]

DETERMINERS = {
    # (kind, case): masculine, feminine, neuter, plural
    ("the", "nominative"): ("der", "die", "das", "die"),
    ("the", "accusative"): ("den", "die", "das", "die"),
    ("the", "dative"): ("dem", "der", "dem", "den"),
    ("a", "nominative"): ("ein", "eine", "ein", "einige"),
    ("a", "accusative"): ("einen", "eine", "ein", "einige"),
    ("a", "dative"): ("einem", "einer", "einem", "einigen"),
    ("this", "nominative"): ("dieser", "diese", "dieses", "diese"),
    ("this", "accusative"): ("diesen", "diese", "dieses", "diese"),
    ("this", "dative"): ("diesem", "dieser", "diesem", "diesen"),
}

ENDINGS = {
    # of adjectives, in the same order
    ("the", "nominative"): ("e", "e", "e", "en"),
    ("the", "accusative"): ("en", "e", "e", "en"),
    ("the", "dative"): ("en", "en", "en", "en"),
    ("a", "nominative"): ("er", "e", "es", "e"),
    ("a", "accusative"): ("en", "e", "es", "e"),
    ("a", "dative"): ("en", "en", "en", "en"),
}
